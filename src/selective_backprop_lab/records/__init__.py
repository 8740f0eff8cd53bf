"""Records of runs: one schema, its writer and reader, and where a number comes from.

Knows nothing of training. Read `schema.py` first: it says what a record holds.
"""
