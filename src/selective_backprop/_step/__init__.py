"""`SelectiveStep`, for training loops that make their own batches, and parts for rollouts.

This package imports neither `_loader` nor `_pruning`. Read `selective_step.py` first.
"""
