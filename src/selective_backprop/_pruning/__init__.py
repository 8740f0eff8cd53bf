"""Scores of examples before training (EL2N, GraNd, losses), and subsets chosen by them.

The user's own code trains the models that score. Does not use `_loader` or `_step`. Read
`example_scores.py` first.
"""
