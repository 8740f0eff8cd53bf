"""Selectors: which scored candidates to train on, and with which weight."""

from selective_backprop.selectors._abstract import (
    AbstractSelector,
    RunningSelector,
    Stateless,
    Terms,
    check_rate,
)
from selective_backprop.selectors._everything import Everything
from selective_backprop.selectors._percentile import Percentile, selection_probability
from selective_backprop.selectors._top import Bottom, Top
from selective_backprop.selectors._uniform import Uniform

__all__ = [
    "AbstractSelector",
    "Bottom",
    "Everything",
    "Percentile",
    "RunningSelector",
    "Stateless",
    "Terms",
    "Top",
    "Uniform",
    "check_rate",
    "selection_probability",
]
