"""Importance sampling: draw each window's rows with replacement, in proportion to their scores."""

from dataclasses import dataclass
from typing import final

import torch

from selective_backprop._core.options import check_number, settle
from selective_backprop._core.types import Odds, RowIndices, Scores
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
class Proportional(AbstractSelector):
    """Draw from each window with replacement, with probabilities proportional to the scores.

    A window holds `n` candidates, `presample` times a training batch, and rows are drawn
    independently. A candidate with a share `p` of the window's scores is drawn with probability
    `p` each time, and weighs `(n * p) ** -bias`. A batch can hold a row twice.

    Negative scores count as 0. Where no score is positive, all candidates are equally likely;
    where some scores are infinite, only those candidates are drawn.

    Args:
        presample: candidates per row of a training batch, more than 1; the paper's B / b. 3
            keeps a third.
        bias: how much of the draw the weights undo, in [0, 1]. With 1 they undo all of it, and
            the weighted mean loss is unbiased. 0 gives no weights, so that high scores count more.

    Raises:
        ConfigurationError: if a value is out of range.

    Source:
        Katharopoulos & Fleuret 2018, arXiv:1803.00942, algorithm 1. Jiang et al. 2019,
        arXiv:1910.00762, compare with it as `bias=0`.
    """

    presample: float = 3.0
    bias: float = 1.0

    def __post_init__(self) -> None:
        hint = "a batch is drawn from more candidates than it has rows"
        settle(self, check_number, "presample", above=1, hint=hint)
        settle(self, check_number, "bias", most=1, hint="1 is unbiased, 0 weighs all alike")

    @property
    def terms(self) -> Terms:
        """Draw one row per `presample` candidates, with replacement."""
        return Terms(1.0 / self.presample, reweights=self.bias > 0.0, replaces=True)

    def start(self, context: Context) -> RunningSelector:
        """Return the running selector."""

        def draw(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            size = scores.shape[0]
            shares = _shares(scores)
            rows = _draw_with_replacement(shares, context.quota(size), generator)
            if self.bias == 0.0:
                return Choice(rows)
            return Choice(rows, (shares.take(rows) * size).pow(-self.bias).float())

        return Stateless(draw)


def _shares(scores: Scores) -> Odds:
    """Return each candidate's share of the positive scores; infinite ones share it all."""
    mass = scores.double().clamp(min=0.0)
    infinite = mass.isposinf()
    mass = torch.where(infinite.any(), infinite.double(), mass)
    mass = mass.where(mass.sum() > 0.0, 1.0)  # a branch would make the host wait
    return mass / mass.sum()


def _draw_with_replacement(shares: Odds, count: int, generator: torch.Generator) -> RowIndices:
    """Draw rows independently, each with its share as probability, without a host read.

    Returns:
        Row positions, ascending because the tosses are sorted; never one whose share is 0.
    """
    tosses = torch.rand(count, generator=generator, device=shares.device, dtype=torch.float64)
    ends = shares.cumsum(0)
    # Rounding may leave the last end beside 1, so the tosses are scaled to it: even the highest,
    # 1 - 2**-53, stays below it.
    return torch.searchsorted(ends, tosses.sort().values * ends[-1:], right=True)
