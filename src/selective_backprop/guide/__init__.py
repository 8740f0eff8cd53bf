"""The guide: what selection would cost and save on a job, and what it skipped."""

from selective_backprop.guide._audit import audit
from selective_backprop.guide._doubts import Doubts, Look, look_at
from selective_backprop.guide._suspects import Cut, Suspects

__all__ = ["Cut", "Doubts", "Look", "Suspects", "audit", "look_at"]
