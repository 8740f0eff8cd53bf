"""Spend backward passes only on the examples that still teach the model something."""

import importlib
import typing

from selective_backprop._agreement import Agreement
from selective_backprop._context import Context
from selective_backprop._ensemble import ExampleScores
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
from selective_backprop._example_scores import el2n_scores, grand_scores
from selective_backprop._finite import NonFinite
from selective_backprop._funnel import Leftovers
from selective_backprop._gate import AbstractGate, RunningGate, VarianceGate
from selective_backprop._history import History
from selective_backprop._ledger import Ledger, Observations
from selective_backprop._loader import SelectiveLoader
from selective_backprop._log import Log
from selective_backprop._prune import Keep, prune
from selective_backprop._schedule import Schedule
from selective_backprop._selection import (
    Choice,
    Draw,
    Selection,
    draw_exactly,
    inclusion_odds,
    tilted_odds,
)
from selective_backprop._stats import ScoreStats, Stats, StepStats
from selective_backprop._step import SelectedLosses, SelectiveStep
from selective_backprop._stopwatch import Stopwatch
from selective_backprop._subset import Subset
from selective_backprop._tokens import SelectedTokens, TokenSelection
from selective_backprop.scorers import (
    AbstractPredictor,
    AbstractScorer,
    Average,
    Check,
    Compiled,
    Crossing,
    Delegating,
    EarlyExit,
    Excess,
    Forward,
    GaussianProcess,
    Int8,
    LowPrecision,
    LowResolution,
    Measure,
    Needs,
    Pipelined,
    Predicted,
    Proxy,
    Recorded,
    ReferenceLosses,
    RunningScorer,
    Stale,
    Synced,
)
from selective_backprop.selectors import (
    AbstractSelector,
    BelowMean,
    Bottom,
    Confident,
    Everything,
    Hide,
    NoiseBudget,
    Paced,
    Percentile,
    Proportional,
    RunningSelector,
    Stateless,
    Terms,
    Top,
    Uniform,
    selection_probability,
)
from selective_backprop.strategies import (
    Strategy,
    auto,
    diet_sb,
    easy_skip,
    infobatch,
    kakurenbo,
    kath18,
    low_k,
    predicted_sb,
    proxy_sb,
    pruned,
    random_backprop,
    random_k,
    random_scored,
    recorded_sb,
    rho_loss,
    selective_backprop,
    stale_sb,
    top_k,
    traditional,
)

if typing.TYPE_CHECKING:
    from selective_backprop.guide import (
        Advice,
        Cut,
        Doubts,
        Forecast,
        Median,
        Recommendation,
        Redundancy,
        ScorerOutcome,
        Suspects,
        advise,
        audit,
    )

__all__ = [
    "AbstractGate",
    "AbstractPredictor",
    "AbstractScorer",
    "AbstractSelector",
    "Advice",
    "Agreement",
    "Average",
    "BatchError",
    "BelowMean",
    "Bottom",
    "Check",
    "Choice",
    "Compiled",
    "Confident",
    "ConfigurationError",
    "Context",
    "Crossing",
    "Cut",
    "DataError",
    "Delegating",
    "Doubts",
    "Draw",
    "EarlyExit",
    "Everything",
    "ExampleScores",
    "Excess",
    "Forecast",
    "Forward",
    "GaussianProcess",
    "Hide",
    "History",
    "Int8",
    "Keep",
    "Ledger",
    "Leftovers",
    "LoaderError",
    "Log",
    "LossError",
    "LowPrecision",
    "LowResolution",
    "Measure",
    "Median",
    "Needs",
    "NoiseBudget",
    "NonFinite",
    "Observations",
    "Paced",
    "Percentile",
    "Pipelined",
    "Predicted",
    "Proportional",
    "Proxy",
    "Recommendation",
    "RecordError",
    "Recorded",
    "Redundancy",
    "ReferenceLosses",
    "RunningGate",
    "RunningScorer",
    "RunningSelector",
    "Schedule",
    "ScoreStats",
    "ScorerOutcome",
    "SelectedLosses",
    "SelectedTokens",
    "Selection",
    "SelectionWarning",
    "SelectiveBackpropError",
    "SelectiveLoader",
    "SelectiveStep",
    "Stale",
    "Stateless",
    "Stats",
    "StepStats",
    "Stopwatch",
    "Strategy",
    "Subset",
    "Suspects",
    "Synced",
    "Terms",
    "TokenSelection",
    "Top",
    "Uniform",
    "VarianceGate",
    "advise",
    "audit",
    "auto",
    "diet_sb",
    "draw_exactly",
    "easy_skip",
    "el2n_scores",
    "grand_scores",
    "inclusion_odds",
    "infobatch",
    "kakurenbo",
    "kath18",
    "low_k",
    "predicted_sb",
    "proxy_sb",
    "prune",
    "pruned",
    "random_backprop",
    "random_k",
    "random_scored",
    "recorded_sb",
    "rho_loss",
    "selection_probability",
    "selective_backprop",
    "stale_sb",
    "tilted_odds",
    "top_k",
    "traditional",
]


def __getattr__(name: str) -> object:
    """Import the guide when it is first asked for: training needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module("selective_backprop.guide"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
