"""Records of runs: one schema, its writer and reader, and the code and machine of each number.

Nothing here knows training. Read `schema.py` first: it says what a record holds.
"""
