"""Turn the frame of evaluations into numbers and words. Read `queries.py` first."""
