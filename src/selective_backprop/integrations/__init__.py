"""Adapters for frameworks that own the training loop; each is imported by its own name.

None of them is imported with `selective_backprop`, and each needs its framework installed.
"""
