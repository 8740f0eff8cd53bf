"""From the frame of evaluations to numbers and words: queries, estimates, tables and findings.

Draws nothing. Read `queries.py` and `comparison.py` first.
"""
