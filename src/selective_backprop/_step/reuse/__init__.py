"""Experimental: spare the second forward pass of selected rows.

`recording.py` records the selection pass, and `replay.py` reuses its results in the training
forward. The one gate for it is unresolved. Knows no history and no selection.
Read `replay.py` first.
"""
