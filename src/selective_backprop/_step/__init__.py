"""`SelectiveStep`, for training loops that make their own batches.

This package imports neither `_loader`, `_rollouts` nor `_pruning`.
"""
