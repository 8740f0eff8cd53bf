"""Selectors: which candidates to train on, and with which weight.

All raise a `ConfigurationError` if a setting is out of its range or of the wrong type.
"""

from selective_backprop._memory.history import History
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import (
    Choice,
    Draw,
    draw_exactly,
    inclusion_odds,
    tilted_odds,
)
from selective_backprop._sampling.schedule import AbstractGate, RunningGate
from selective_backprop.selectors._abstract import (
    AbstractSelector,
    Paced,
    RunningSelector,
    Stateless,
    Terms,
)
from selective_backprop.selectors._by_loss import BelowMean, Confident, Hide
from selective_backprop.selectors._by_rate import (
    Bottom,
    Everything,
    Percentile,
    Proportional,
    Top,
    Uniform,
)

__all__ = ["AbstractGate", "AbstractSelector", "BelowMean", "Bottom", "Choice", "Confident"]
__all__ += ["Context", "Draw", "Everything", "Hide", "History", "Paced", "Percentile"]
__all__ += ["Proportional", "RunningGate", "RunningSelector", "Stateless", "Terms", "Top"]
__all__ += ["Uniform", "draw_exactly", "inclusion_odds", "tilted_odds"]
