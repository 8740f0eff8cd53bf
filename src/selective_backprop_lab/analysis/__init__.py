"""From records to numbers: loading, grouping, statistics, tables and findings.

Draws nothing. Read `loading.py` and `grouping.py` first.
"""
