"""Spare the second forward pass of selected rows.

`activations.py` records the selection pass and reuses its results in the training forward. Read
`reuse_activations.py` first.
"""
