"""`SelectiveStep`, for training loops that make their own batches, and selection of tokens.

This package imports neither `_loader` nor `_pruning`. Read `selective_step.py` first.
"""
