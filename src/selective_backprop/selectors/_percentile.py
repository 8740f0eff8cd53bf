"""Selective-Backprop: the higher a loss ranks among recent losses, the likelier it is kept."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from selective_backprop._core.options import check_number, check_whole, choose, settle
from selective_backprop._core.types import Scores
from selective_backprop._memory.history import History, share_below
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import (
    Choice,
    Draw,
    DrawName,
    draw_coins,
    draw_exactly,
    draw_exactly_on_host,
    tilt_on_host,
    tilted_odds,
)
from selective_backprop.selectors._abstract import (
    AbstractSelector,
    RunningSelector,
    Stateless,
    Terms,
)

BETA = "2 keeps about a third"


@final
@dataclass(frozen=True)
class Percentile(AbstractSelector):
    """Keep a candidate with odds that grow with the rank of its loss among recent losses.

    A candidate whose loss exceeds a share `q` of the recent losses is to be kept with probability
    `q ** beta`.

    Args:
        beta: selectivity, at least 0. 0 keeps everything, 1 about a half, 2 about a third.
        draw: `"exact"` keeps a fixed number of each window, with odds as near to `q ** beta` as
            that allows; `"bernoulli"` tosses a coin per candidate, as the paper does, so that
            the number kept varies.
        history: how many recent losses are ranked against, R; at least 1.

    Raises:
        ConfigurationError: if a value is out of range or there is no such draw.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 3. As in the authors' code a candidate's
        own loss is filed before it is ranked, and a tie does not count as exceeded.
    """

    beta: float
    draw: Draw | DrawName = Draw.EXACT
    history: int = 1024

    def __post_init__(self) -> None:
        settle(self, check_number, "beta", hint=BETA)
        settle(self, choose, "draw", kind=Draw)
        settle(self, check_whole, "history")

    @property
    def terms(self) -> Terms:
        """Keep `1 / (beta + 1)`, if losses are distributed as the recent ones are."""
        return Terms(1.0 / (self.beta + 1.0), Draw(self.draw), self.history)

    def start(self, context: Context) -> RunningSelector:
        """Return the running selector."""

        def exact(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            count = context.quota(scores.shape[0])
            if scores.device.type == "cpu":  # small NumPy arrays cost less than small tensors
                wanted = history.percentiles_on_host(scores) ** self.beta
                odds = tilt_on_host(wanted, count)
                return Choice(torch.from_numpy(draw_exactly_on_host(odds, count, generator)))
            odds = tilted_odds(history.percentiles(scores).pow(self.beta), count)
            return Choice(draw_exactly(odds, count, generator))

        def bernoulli(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            return Choice(draw_coins(history.percentiles(scores).pow(self.beta), generator))

        return Stateless(exact if self.draw is Draw.EXACT else bernoulli)


def selection_probability(
    losses: Float[Tensor, " candidate"],
    history: Float[Tensor, " recent"],
    beta: float,
) -> Float64[Tensor, " candidate"]:
    """Return the probability with which Selective-Backprop keeps each candidate.

    A candidate whose loss exceeds a share `q` of the recent losses is kept with probability
    `q ** beta`. Where losses are distributed as the history is, `q` is uniform and a share
    `1 / (beta + 1)` is kept.

    Args:
        losses: one loss per candidate; any unit and sign, since only ranks count.
        history: the most recent losses, in any order.
        beta: selectivity, at least 0. 0 keeps everything, 1 about a half, 2 about a third.

    Returns:
        Probabilities in [0, 1]. All are 1 where `history` is empty (the loader files a batch
        first, so only a direct caller meets this): nothing is known, so nothing is left out.

    Raises:
        ConfigurationError: if `beta` is negative or not a finite number.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 3. As in the authors' code, a tie does not
        count as exceeded.

    Example:
        >>> import torch
        >>> recent = torch.tensor([0.1, 0.2, 0.3, 0.4])
        >>> selection_probability(torch.tensor([0.05, 0.25, 0.9]), recent, beta=2)
        tensor([0.0000, 0.2500, 1.0000], dtype=torch.float64)
    """
    return share_below(losses, history).pow(check_number("beta", beta, BETA))
