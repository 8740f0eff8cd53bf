"""Data sets: reading them from their publishers' files, and what is done to them before training.

Knows nothing of strategies, runs or records. Read `datasets.py` first: it finds a data set by name.
"""
