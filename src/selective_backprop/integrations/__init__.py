"""Adapters for frameworks that own the training loop; each is imported by its own name.

`import selective_backprop` imports none of them; each needs its framework installed.
"""
