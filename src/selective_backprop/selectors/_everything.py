"""Keep every candidate: training without selection."""

from dataclasses import dataclass
from typing import final

import torch

from selective_backprop._core.types import Scores
from selective_backprop._memory.history import History
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice
from selective_backprop.selectors._abstract import (
    AbstractSelector,
    RunningSelector,
    Stateless,
    Terms,
)


@final
@dataclass(frozen=True)
class Everything(AbstractSelector):
    """Keep every candidate; candidate batches pass through unchanged."""

    @property
    def terms(self) -> Terms:
        """Keep all, whatever the scores."""
        return Terms(rate=1.0, needs_scores=False, keeps_everything=True)

    def start(self, context: Context) -> RunningSelector:
        """Return the running selector."""
        return Stateless(_keep_all)


def _keep_all(scores: Scores, history: History, generator: torch.Generator) -> Choice:
    return Choice(torch.arange(scores.shape[0], device=scores.device))
