"""Spend backward passes only on the examples that still teach the model something."""

import importlib
import typing

from selective_backprop._core.errors import (
    BatchError,
    ConfigurationError,
    DataError,
    LoaderError,
    LossError,
    RecordError,
    SelectionWarning,
    SelectiveBackpropError,
)
from selective_backprop._core.stats import ScoreStats, Stats, StepStats
from selective_backprop._core.stopwatch import Stopwatch
from selective_backprop._loader.log import Log
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop._memory.history import History
from selective_backprop._memory.ledger import Ledger, Observations
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.rows import Leftovers
from selective_backprop._pruning.ensemble import ExampleScores
from selective_backprop._pruning.example_scores import el2n_scores, grand_scores
from selective_backprop._pruning.prune import Keep, prune
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import (
    Choice,
    Draw,
    Selection,
    draw_exactly,
    inclusion_odds,
    tilted_odds,
)
from selective_backprop._sampling.gate import AbstractGate, RunningGate, VarianceGate
from selective_backprop._sampling.schedule import Schedule
from selective_backprop._sampling.subset import Subset
from selective_backprop._step.selective_step import SelectedLosses, SelectiveStep
from selective_backprop._step.tokens import SelectedTokens, TokenSelection
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
from selective_backprop.scorers._agreement import Agreement
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
