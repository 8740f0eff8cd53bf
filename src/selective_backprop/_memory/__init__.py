"""What is remembered from step to step: recent scores, and the last scores of each example.

Also how ranks share these. Read `history.py`, then `ledger.py`.
"""
