"""What is remembered from step to step: recent scores, and the last scores of each example.

Also how ranks share what they remember. Knows the rooms below. Read `history.py`, then
`ledger.py`.
"""
