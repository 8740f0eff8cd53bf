"""Experimental: spare the second forward pass of rows that are kept.

The selection pass is recorded (`recording.py`), and the training forward is answered from it
(`replay.py`). The one gate for it is unresolved. Knows no history and no selection.
Read `replay.py` first.
"""
