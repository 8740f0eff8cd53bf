"""How far two scorings of the same candidates agree: on their order, and on the highest of them."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_number
from selective_backprop._core.types import Scores


@dataclass(frozen=True)
class Agreement:
    """How far cheap scores agree with exact ones, on average over some batches.

    Attributes:
        correlation: Spearman's rank correlation, in [-1, 1].
        overlap: of the candidates that exact scores put among the highest, the share that cheap
            scores put there too, in [0, 1]; by chance it is the share looked at, `rate`.
        rate: which share of a batch counts as the highest, in (0, 1].
        batches: how many batches were scored both ways.
        candidates: how many candidates were.
    """

    correlation: float
    overlap: float
    rate: float
    batches: int
    candidates: int

    @classmethod
    def between(cls, scores: Scores, exact: Scores, *, rate: float) -> "Agreement":
        """Return how far two scorings of one batch agree; waits for the device they are on.

        Args:
            scores: of each candidate, at least one.
            exact: scores of the same candidates.
            rate: which share of them counts as the highest, in (0, 1].

        Raises:
            ConfigurationError: if the scores are not of equally many candidates, or of none, or
                the rate is out of its range.
        """
        rate = check_number("rate", rate, above=0, most=1)
        if scores.shape != exact.shape or not len(scores):
            raise ConfigurationError(
                f"{len(scores)} scores are held against {len(exact)} exact ones; both must be of "
                "the same candidates, at least one"
            )
        correlation, overlap = measure(scores, exact, rate).tolist()
        return cls(correlation, overlap, rate, batches=1, candidates=len(scores))


def measure(scores: Scores, exact: Scores, rate: float) -> Float64[Tensor, " 2"]:
    """Return rank correlation and overlap of the highest, without a host synchronisation."""
    count = max(1, round(rate * scores.shape[0]))
    return torch.stack([rank_correlation(scores, exact), overlap(scores, exact, count)])


def rank_correlation(one: Scores, other: Scores) -> Float64[Tensor, ""]:
    """Return Spearman's rank correlation; equal scores share their average rank.

    Returns:
        In [-1, 1], on the scores' device. Where all scores of either are equal there is no order
        to agree on: 1 if both say so, else 0.
    """
    first, second = (_centred_ranks(scores) for scores in (one, other))
    spreads = first @ first, second @ second
    product = spreads[0] * spreads[1]
    # at least 1 where there is any spread, so that nothing is divided by 0 elsewhere
    found = (first @ second) / product.sqrt().clamp(min=0.25)
    return torch.where(product > 0, found, (spreads[0] == spreads[1]).double())


def overlap(one: Scores, other: Scores, count: int) -> Float64[Tensor, ""]:
    """Return which share of the `count` highest of one scoring are among those of another.

    Of candidates that tie for the last places, each counts with the odds it has of a place.

    Args:
        one: scores, in any unit.
        other: scores of the same candidates.
        count: how many count as the highest, at least 1 and at most all.
    """
    return torch.minimum(_places(one, count), _places(other, count)).sum() / count


def _centred_ranks(scores: Scores) -> Float64[Tensor, " candidate"]:
    values = _ordered(scores)
    ascending = values.sort().values
    below = torch.searchsorted(ascending, values)
    up_to = torch.searchsorted(ascending, values, right=True)
    return (below + up_to).double() / 2 - values.shape[0] / 2  # which is their mean


def _places(scores: Scores, count: int) -> Float64[Tensor, " candidate"]:
    """Return each candidate's odds of being among the `count` highest."""
    values = _ordered(scores)
    last = values.topk(count).values[-1]
    above, level = (values > last).double(), (values == last).double()
    return above + level * ((count - above.sum()) / level.sum())


def _ordered(scores: Scores) -> Float64[Tensor, " candidate"]:
    """Return the scores as numbers that have an order: NaN is above all others."""
    inf = float("inf")
    return scores.detach().double().nan_to_num(nan=inf, posinf=inf, neginf=-inf).contiguous()
