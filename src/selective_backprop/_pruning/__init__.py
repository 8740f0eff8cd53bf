"""Scores of examples before training (EL2N, GraNd, losses), and subsets chosen by them.

The user's own training makes the ensembles. Images that nearly repeat another are found without
a model. Knows neither `_loader` nor `_step`. Read `example_scores.py` first.
"""
