"""Scores of examples before training (EL2N, GraNd, losses), and subsets chosen by them."""
