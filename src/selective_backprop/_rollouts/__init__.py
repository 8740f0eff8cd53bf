"""Parts for reinforcement learning: which answers and rows to train on, and which prompts rest.

This package imports neither `_loader`, `_step` nor `_pruning`.
"""
