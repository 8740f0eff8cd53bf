"""`SelectiveStep`, for loops that own their batches, and selection of tokens.

Knows neither `_loader` nor `_pruning`. Read `selective_step.py` first.
"""
