"""Spend backward passes only on the examples that still teach the model something."""

import importlib
import typing
from importlib import metadata as _metadata

from selective_backprop import scorers as scorers
from selective_backprop import selectors as selectors
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
from selective_backprop._loader.candidate_scheduler import CandidateScheduler
from selective_backprop._loader.log import Log
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop._pipeline.in_memory import in_memory_loader
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.rows import Leftovers
from selective_backprop._pipeline.unique_stream import unique_stream
from selective_backprop._pruning.example_scores import ExampleScores, el2n_scores, example_losses
from selective_backprop._pruning.prune import prune
from selective_backprop._rollouts.nonzero_rows import NonzeroRows
from selective_backprop._rollouts.rewards import RestingPrompts, informative, max_variance
from selective_backprop._sampling.draws import Selection
from selective_backprop._sampling.schedule import Schedule, VarianceGate
from selective_backprop._sampling.subset import Subset
from selective_backprop._step.selective_step import SelectedLosses, SelectiveStep
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._auto.rule import auto
from selective_backprop.strategies._methods import (
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
    random_scored,
    recorded_sb,
    rho_loss,
    selective_backprop,
    stale_sb,
    tail_sft,
    top_k,
    traditional,
)

if typing.TYPE_CHECKING:
    __version__: str
    from selective_backprop import experimental as experimental
    from selective_backprop import guide as guide

_LATER = ("experimental", "guide")

__all__ = ["BatchError", "CandidateScheduler", "ConfigurationError", "DataError", "ExampleScores"]
__all__ += ["Leftovers", "LoaderError", "Log", "LossError", "NonFinite", "NonzeroRows"]
__all__ += ["RecordError", "RestingPrompts", "Schedule", "ScoreStats", "SelectedLosses"]
__all__ += ["Selection", "SelectionWarning", "SelectiveBackpropError", "SelectiveLoader"]
__all__ += ["SelectiveStep", "Stats", "StepStats", "Stopwatch", "Strategy", "Subset"]
__all__ += ["VarianceGate", "auto", "diet_sb", "easy_skip", "el2n_scores", "example_losses"]
__all__ += ["in_memory_loader", "infobatch", "informative", "kakurenbo", "kath18", "low_k"]
__all__ += ["max_variance", "predicted_sb", "proxy_sb", "prune", "pruned", "random_backprop"]
__all__ += ["random_scored", "recorded_sb", "rho_loss", "selective_backprop", "stale_sb"]
__all__ += ["tail_sft", "top_k", "traditional", "unique_stream"]


def __getattr__(name: str) -> object:
    """Import what training seldom needs, and find the version, when they are asked for."""
    if name in _LATER:
        return importlib.import_module(f"selective_backprop.{name}")
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return _metadata.version("selective-backprop")
    except _metadata.PackageNotFoundError:  # it runs from a folder of sources
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "__version__"})
