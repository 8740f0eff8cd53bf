"""InfoBatch: prune at random among low scores, and give those that stay more weight."""

from dataclasses import dataclass
from typing import final

import torch

from selective_backprop._core.options import check_flag, check_number, check_whole, settle
from selective_backprop._core.types import Scores
from selective_backprop._memory.history import History
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice, Draw, draw_coins
from selective_backprop.selectors._abstract import (
    AbstractSelector,
    RunningSelector,
    Stateless,
    Terms,
)


@final
@dataclass(frozen=True)
class BelowMean(AbstractSelector):
    """Prune candidates that score below the mean of the remembered scores, each by a coin toss.

    A candidate below the mean is left out with probability `prune` and weighs `1 / (1 - prune)`
    if it stays; all others stay and weigh 1. Where nothing is remembered, everything stays.

    The mean weight of kept rows is then the number of candidates per kept row, more than 1: the
    paper takes longer steps, and fewer of them. By default the weights are scaled by the share of
    rows that is kept if candidates score as the remembered ones do, so that
    `(weights * losses).mean()` is unbiased.

    Args:
        prune: probability of being left out below the mean, in [0, 1); the paper's r.
        longer_steps: leave the weights as the paper has them.
        history: how many recent scores the mean is taken over, at least 1, where each window is
            scored. Where losses are remembered by example, the mean is taken over all of them.

    Raises:
        ConfigurationError: if a value is out of range.

    Source:
        Qin et al. 2023, arXiv:2303.04947, section 3.
    """

    prune: float = 0.5
    longer_steps: bool = False
    history: int = 1024

    def __post_init__(self) -> None:
        settle(self, check_number, "prune", below=1, hint="0.5 prunes half of what is below")
        settle(self, check_flag, "longer_steps")
        settle(self, check_whole, "history")

    @property
    def terms(self) -> Terms:
        """Keep `1 - prune / 2`, if half of the scores are below the mean; often more are."""
        return Terms(
            1.0 - self.prune / 2.0,
            Draw.BERNOULLI,
            self.history,
            reweights=True,
            promises=False,
        )

    def start(self, context: Context) -> RunningSelector:
        """Return the running selector."""
        return Stateless(self._prune)

    def _prune(self, scores: Scores, history: History, generator: torch.Generator) -> Choice:
        # In the scores' own precision, in which the mean of equal scores is not above them.
        mean = history.mean().to(scores)
        below = scores < mean
        kept = 1.0 - self.prune * below.double()
        rows = draw_coins(kept, generator)
        weights = kept.take(rows).reciprocal()
        if not self.longer_steps:
            # Without a finite mean nothing was pruned, and the weights stay 1.
            share = history.percentiles(mean.reshape(1)).where(mean.isfinite(), 0.0)
            weights = weights * (1.0 - self.prune * share)
        return Choice(rows, weights.float())
