"""The guide: find out whether `auto` pays in your training, and find wrong labels and copies."""

from selective_backprop.guide._advise import Advice, DataTraits, advise, data_traits
from selective_backprop.guide._audit import audit, example_table
from selective_backprop.guide._copies import Copies, find_copies
from selective_backprop.guide._label_doubts import Doubts, Look, look_at
from selective_backprop.guide._label_issues import find_label_issues
from selective_backprop.guide._ranked_examples import Suspects, write_table

__all__ = [
    "Advice",
    "Copies",
    "DataTraits",
    "Doubts",
    "Look",
    "Suspects",
    "advise",
    "audit",
    "data_traits",
    "example_table",
    "find_copies",
    "find_label_issues",
    "look_at",
    "write_table",
]
