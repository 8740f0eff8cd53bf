"""What is remembered from step to step: recent scores, and the last scores of each example.

Knows the rooms below: how ranks share what they remember is decided here. Read `history.py`, then
`ledger.py`.
"""
