"""Selectors: which scored candidates to train on, and with which weight."""

from selective_backprop.selectors._abstract import (
    AbstractSelector,
    Paced,
    RunningSelector,
    Stateless,
    Terms,
)
from selective_backprop.selectors._below_mean import BelowMean
from selective_backprop.selectors._confident import Confident
from selective_backprop.selectors._everything import Everything
from selective_backprop.selectors._hide import Hide
from selective_backprop.selectors._noise_budget import NoiseBudget
from selective_backprop.selectors._percentile import Percentile, selection_probability
from selective_backprop.selectors._proportional import Proportional
from selective_backprop.selectors._top import Bottom, Top
from selective_backprop.selectors._uniform import Uniform

__all__ = [
    "AbstractSelector",
    "BelowMean",
    "Bottom",
    "Confident",
    "Everything",
    "Hide",
    "NoiseBudget",
    "Paced",
    "Percentile",
    "Proportional",
    "RunningSelector",
    "Stateless",
    "Terms",
    "Top",
    "Uniform",
    "selection_probability",
]
