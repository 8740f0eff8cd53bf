"""Records of runs, without knowledge of training. `schema.py` says what a record holds."""
