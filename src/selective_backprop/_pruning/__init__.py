"""Scores of examples before training (EL2N, losses), and subsets chosen by them."""
