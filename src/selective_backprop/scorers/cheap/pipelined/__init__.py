"""Experimental: score beside the training, in a second process or on a second stream.

No record has a number of it. No other scorer knows it. Read `_pipelined.py` first.
"""
