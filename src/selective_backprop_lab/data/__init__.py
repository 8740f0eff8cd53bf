"""Read data sets from their publishers' files, and change them before training.

Nothing here knows strategies, runs or records. Read `datasets.py` first: it finds data by name.
"""
