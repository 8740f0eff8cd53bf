"""Experimental: spare the second forward pass of selected rows.

`activations.py` records the selection pass and reuses its results in the training forward. The
one gate for it is unresolved. Knows no history and no selection. Read `activations.py` first.
"""
