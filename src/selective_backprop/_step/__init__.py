"""The door for loops that own their batches: `SelectiveStep`, and selection by token.

Knows neither `_loader` nor `_pruning`. Read `selective_step.py` first.
"""
