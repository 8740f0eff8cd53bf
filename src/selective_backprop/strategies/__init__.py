"""Strategies: each combines a scorer, a selector and a schedule."""

from selective_backprop.strategies._strategy import Strategy

__all__ = ["Strategy"]
