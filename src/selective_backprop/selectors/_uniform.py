"""Keep a share of the candidates at random, whatever their scores."""

from dataclasses import dataclass
from typing import final

import torch

from selective_backprop._core.options import check_rate, choose, settle
from selective_backprop._core.types import Scores
from selective_backprop._memory.history import History
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice, Draw, DrawName, draw_coins, draw_uniformly
from selective_backprop.selectors._abstract import (
    AbstractSelector,
    RunningSelector,
    Stateless,
    Terms,
)


@final
@dataclass(frozen=True)
class Uniform(AbstractSelector):
    """Keep each candidate with the same odds.

    Args:
        rate: share of the candidates to keep, in (0, 1].
        draw: `"exact"` keeps a fixed number of each window, `"bernoulli"` tosses a coin per
            candidate.

    Raises:
        ConfigurationError: if the rate is out of range or there is no such draw.
    """

    rate: float
    draw: Draw | DrawName = Draw.EXACT

    def __post_init__(self) -> None:
        settle(self, check_rate, "rate")
        settle(self, choose, "draw", kind=Draw)

    @property
    def terms(self) -> Terms:
        """Keep the rate, whatever the scores."""
        return Terms(self.rate, Draw(self.draw), needs_scores=False)

    def start(self, context: Context) -> RunningSelector:
        """Return the running selector."""

        def exact(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            size = scores.shape[0]
            return Choice(draw_uniformly(size, context.quota(size), generator, scores.device))

        def bernoulli(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            odds = torch.full_like(scores, self.rate, dtype=torch.float64)
            return Choice(draw_coins(odds, generator))

        return Stateless(exact if self.draw is Draw.EXACT else bernoulli)
