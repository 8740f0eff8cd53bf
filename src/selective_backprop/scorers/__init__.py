"""Scorers give each candidate a number, its score; selectors choose candidates by these scores.

Read `_abstract.py` first, then `_forward.py`, the scorer of Selective-Backprop.

All raise a `ConfigurationError` if a setting is out of its range or of the wrong type.
"""

from selective_backprop._memory.ledger import ClassVisits, Ledger, Observations, WrongShare
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import AbstractScorer, Delegating, Needs, RunningScorer
from selective_backprop.scorers._agreement import Agreement
from selective_backprop.scorers._forward import Forward, Measure
from selective_backprop.scorers._predictors import AbstractPredictor, Average, GaussianProcess
from selective_backprop.scorers._remembered import AbstractMemoryScorer, Predicted, Recorded, Stale
from selective_backprop.scorers._second_model import Excess, Proxy, ReferenceLosses

__all__ = ["AbstractMemoryScorer", "AbstractPredictor", "AbstractScorer", "Agreement", "Average"]
__all__ += ["ClassVisits", "Context", "Delegating", "Excess", "Forward", "GaussianProcess"]
__all__ += ["Ledger", "Measure", "Needs", "Observations", "Predicted", "Proxy", "Recorded"]
__all__ += ["ReferenceLosses", "RunningScorer", "Stale", "WrongShare"]
