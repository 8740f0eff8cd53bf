"""Rows of any nested batch: counted, cut, joined, moved and saved, and one loss for each.

Knows `_core` alone. Read `structure.py` first.
"""
