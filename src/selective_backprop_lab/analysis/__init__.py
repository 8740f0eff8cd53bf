"""Turn the frame of evaluations into numbers and words: queries, estimates, tables and findings.

Nothing is drawn here. Read `queries.py` and `comparison.py` first.
"""
