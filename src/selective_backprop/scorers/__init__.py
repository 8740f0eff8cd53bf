"""Scorers: one number per candidate, by which selectors choose."""

from selective_backprop.scorers._abstract import AbstractScorer, RunningScorer
from selective_backprop.scorers._forward import Forward

__all__ = ["AbstractScorer", "Forward", "RunningScorer"]
