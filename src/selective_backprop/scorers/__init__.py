"""Scorers: one number per candidate, by which selectors choose."""

from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Learning,
    Needs,
    Remembering,
    RunningScorer,
)
from selective_backprop.scorers._average import Average
from selective_backprop.scorers._crossing import Crossing
from selective_backprop.scorers._excess import Excess, ReferenceLosses
from selective_backprop.scorers._forward import Forward, Measure, MeasureName
from selective_backprop.scorers._gaussian import GaussianProcess
from selective_backprop.scorers._predicted import Predicted
from selective_backprop.scorers._predictor import AbstractPredictor
from selective_backprop.scorers._proxy import Proxy
from selective_backprop.scorers._recorded import Recorded
from selective_backprop.scorers._stale import Stale

__all__ = [
    "AbstractPredictor",
    "AbstractScorer",
    "Average",
    "Crossing",
    "Excess",
    "Forward",
    "GaussianProcess",
    "Learning",
    "Measure",
    "MeasureName",
    "Needs",
    "Predicted",
    "Proxy",
    "Recorded",
    "ReferenceLosses",
    "Remembering",
    "RunningScorer",
    "Stale",
]
