"""Scorers that make a selection pass cheaper, most of them by wrapping another scorer.

Each approximates an exact scorer, and may be compared with it now and then. Integers
and `pipelined/` are experimental. Read `_approximate.py` first.
"""
