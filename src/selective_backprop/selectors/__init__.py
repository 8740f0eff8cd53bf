"""Selectors: which scored candidates to train on, and with which weight."""

from selective_backprop._memory.history import History
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import (
    Choice,
    Draw,
    draw_exactly,
    inclusion_odds,
    tilted_odds,
)
from selective_backprop._sampling.gate import AbstractGate, RunningGate
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
    "AbstractGate",
    "AbstractSelector",
    "BelowMean",
    "Bottom",
    "Choice",
    "Confident",
    "Context",
    "Draw",
    "Everything",
    "Hide",
    "History",
    "NoiseBudget",
    "Paced",
    "Percentile",
    "Proportional",
    "RunningGate",
    "RunningSelector",
    "Stateless",
    "Terms",
    "Top",
    "Uniform",
    "draw_exactly",
    "inclusion_odds",
    "selection_probability",
    "tilted_odds",
]
