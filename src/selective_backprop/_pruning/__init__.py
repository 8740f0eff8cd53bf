"""Scores of examples before training (EL2N, GraNd, losses), and subsets chosen by them.

The user's own code trains the models that score. Images that nearly repeat another are found
without a model. Does not use `_loader` or `_step`. Read `example_scores.py` first.
"""
