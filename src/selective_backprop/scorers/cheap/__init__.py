"""Scorers that wrap another one to make its passes cheaper.

Each stands in for the scorer that it wraps, and may be held against it now and then
(`_approximate.py`, `_check.py`). Read `_approximate.py` first.
"""
