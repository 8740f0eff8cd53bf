"""Experimental: score beside the training, in a second process or on a second stream.

No record shows yet that this pays. Read `_pipelined.py` first.
"""
