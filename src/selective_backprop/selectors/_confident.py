"""Easy-skip: leave out some of the examples that are surely learned, and no others."""

from dataclasses import dataclass
from typing import final

import torch

from selective_backprop._core.options import check_number, settle
from selective_backprop._core.types import Odds, Scores
from selective_backprop._memory.history import History
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice, Draw, draw_coins
from selective_backprop.selectors._abstract import (
    FLOOR,
    AbstractSelector,
    RunningSelector,
    Stateless,
    Terms,
)


@final
@dataclass(frozen=True)
class Confident(AbstractSelector):
    """Keep each candidate with odds that fall only where the model is confident of its class.

    Losses are read as cross-entropies: the model gives the true class the probability
    `exp(-loss)`. If that is at most a half, the candidate is certain to be kept. Above a half,
    its odds `P` fall in proportion to the probability of all other classes, but not below
    `floor`. High scores are never favoured, so that noise is not.

    A kept row weighs `P ** -0.5`. That is between a weight of 1, which would neglect learned
    examples, and `1 / P`, which would be unbiased but let single rows count `1 / floor` times. So
    the weighted mean loss is a biased estimate.

    Args:
        floor: the lowest odds, in (0, 1]. A row weighs at most `floor ** -0.5`.

    Raises:
        ConfigurationError: if the floor is out of range.
    """

    floor: float = 0.25

    def __post_init__(self) -> None:
        settle(self, check_number, "floor", above=0, most=1, hint=FLOOR)

    @property
    def terms(self) -> Terms:
        """Keep all when training starts, and at least `floor` later; the rate is the midpoint."""
        return Terms(
            (1.0 + self.floor) / 2.0,
            Draw.BERNOULLI,
            reweights=True,
            promises=False,
            confidence=True,
        )

    def start(self, context: Context) -> RunningSelector:
        """Return the running selector."""

        def toss(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            odds = _keep_odds(scores, self.floor)
            rows = draw_coins(odds, generator)
            return Choice(rows, odds.take(rows).rsqrt().float())

        return Stateless(toss)


def misses(losses: Scores) -> Odds:
    """Return `1 - exp(-loss)`, at least 0: for cross-entropies, the odds of all other classes."""
    return (-torch.expm1(-losses.double())).clamp(min=0.0)


def _keep_odds(losses: Scores, floor: float) -> Odds:
    """Return `2 * (1 - exp(-loss))`, at least `floor` and at most 1."""
    return (2.0 * misses(losses)).clamp(floor, 1.0)
