"""Count, cut, join, move and save the rows of any nested batch, and compute one loss for each.

This package imports only `_core`. Read `structure.py` first.
"""
