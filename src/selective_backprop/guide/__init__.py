"""The guide: find out whether `auto` pays in your training, and find wrong labels and copies."""

from selective_backprop.guide._advice.advise import Advice, advise
from selective_backprop.guide._advice.traits import DataTraits, data_traits
from selective_backprop.guide._audit.audit import audit, example_table
from selective_backprop.guide._audit.label_doubts import Doubts, Look, look_at
from selective_backprop.guide._audit.label_issues import find_label_issues
from selective_backprop.guide._audit.ranked_examples import Suspects, write_table
from selective_backprop.guide._copies import Copies, find_copies

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
