"""Spend backward passes only on the examples that still teach the model something."""

from selective_backprop._context import Context
from selective_backprop._errors import (
    BatchError,
    ConfigurationError,
    DataError,
    LoaderError,
    LossError,
    RecordError,
    SelectionWarning,
    SelectiveBackpropError,
)
from selective_backprop._finite import NonFinite
from selective_backprop._funnel import Leftovers
from selective_backprop._history import History
from selective_backprop._loader import SelectiveLoader
from selective_backprop._schedule import Schedule
from selective_backprop._selection import (
    Choice,
    Draw,
    Selection,
    draw_exactly,
    inclusion_odds,
    tilted_odds,
)
from selective_backprop._stats import Stats
from selective_backprop._stopwatch import Stopwatch
from selective_backprop._strategies import (
    Strategy,
    random_backprop,
    random_scored,
    selective_backprop,
    traditional,
)
from selective_backprop.scorers import AbstractScorer, Forward, RunningScorer
from selective_backprop.selectors import (
    AbstractSelector,
    Bottom,
    Everything,
    Percentile,
    RunningSelector,
    Stateless,
    Terms,
    Top,
    Uniform,
    selection_probability,
)

__all__ = [
    "AbstractScorer",
    "AbstractSelector",
    "BatchError",
    "Bottom",
    "Choice",
    "ConfigurationError",
    "Context",
    "DataError",
    "Draw",
    "Everything",
    "Forward",
    "History",
    "Leftovers",
    "LoaderError",
    "LossError",
    "NonFinite",
    "Percentile",
    "RecordError",
    "RunningScorer",
    "RunningSelector",
    "Schedule",
    "Selection",
    "SelectionWarning",
    "SelectiveBackpropError",
    "SelectiveLoader",
    "Stateless",
    "Stats",
    "Stopwatch",
    "Strategy",
    "Terms",
    "Top",
    "Uniform",
    "draw_exactly",
    "inclusion_odds",
    "random_backprop",
    "random_scored",
    "selection_probability",
    "selective_backprop",
    "tilted_odds",
    "traditional",
]
