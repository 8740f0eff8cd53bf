"""Tell an example's score from its last ones, for `Predicted`.

Knows what the ledger remembers, and no scorer. Read `_predictor.py` first.
"""
