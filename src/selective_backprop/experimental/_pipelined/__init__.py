"""Score beside the training, in a second process or on a second stream. Read `scorer.py` first."""
