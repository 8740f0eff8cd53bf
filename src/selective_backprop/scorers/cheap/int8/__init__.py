"""Experimental: score with a copy of the model in 8-bit integers, on a CPU.

No record shows yet that this pays. Read `_int8.py` first.
"""
