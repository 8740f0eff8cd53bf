"""The guide: what selection would cost and save on a training, and which labels look wrong."""

from selective_backprop.guide._advise import Advice, ScorerOutcome, advise
from selective_backprop.guide._audit.audit import audit
from selective_backprop.guide._audit.example_table import example_table, write_table
from selective_backprop.guide._audit.label_doubts import Doubts, Look, look_at
from selective_backprop.guide._audit.ranked_examples import Cut, Suspects
from selective_backprop.guide._data_traits import DataTraits, data_traits
from selective_backprop.guide._forecast import Forecast
from selective_backprop.guide._recommend import Recommendation
from selective_backprop.guide._redundancy import Redundancy
from selective_backprop.guide._rounds import Median
from selective_backprop.guide._worth import WorthForecast

__all__ = [
    "Advice",
    "Cut",
    "DataTraits",
    "Doubts",
    "Forecast",
    "Look",
    "Median",
    "Recommendation",
    "Redundancy",
    "ScorerOutcome",
    "Suspects",
    "WorthForecast",
    "advise",
    "audit",
    "data_traits",
    "example_table",
    "look_at",
    "write_table",
]
