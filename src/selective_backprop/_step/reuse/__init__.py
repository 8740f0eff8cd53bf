"""Experimental: spare the second forward pass of rows that are kept.

The selection pass is recorded (`recording.py`), and the training forward is answered from it
(`replay.py`). No record shows yet that this pays. Read `replay.py` first.
"""
