"""Agreement of two scorings of the same candidates: on their order, and on the highest scores."""

from dataclasses import dataclass

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_number
from selective_backprop._core.types import Float64, Scores


@dataclass(frozen=True)
class Agreement:
    """How far approximate scores agree with exact ones, on average over some batches.

    Attributes:
        correlation: Spearman's rank correlation, in [-1, 1].
        overlap: of the candidates with the highest exact scores, the share that also has the
            highest approximate scores, in [0, 1]. With random scores it is about `rate`.
        rate: the share of a batch's scores that counts as the highest, in (0, 1].
        batches: how many batches were scored both approximately and exactly.
        candidates: how many candidates were scored both approximately and exactly.
    """

    correlation: float
    overlap: float
    rate: float
    batches: int
    candidates: int

    @classmethod
    def between(cls, scores: Scores, exact: Scores, *, rate: float) -> "Agreement":
        """Return how far approximate scores of a batch agree with exact ones of its candidates."""
        rate = check_number("rate", rate, above=0, most=1)
        if scores.shape != exact.shape or not len(scores):
            raise ConfigurationError(
                f"{len(scores)} scores cannot be compared with {len(exact)} exact ones; both must "
                "be scores of the same candidates, at least one"
            )
        return cls(*measure(scores, exact, rate).tolist(), rate, batches=1, candidates=len(scores))


def measure(scores: Scores, exact: Scores, rate: float) -> Float64[Tensor, " 2"]:
    """Return the rank correlation and the overlap, without making the host wait for a device."""
    count = max(1, round(rate * scores.shape[0]))
    return torch.stack([rank_correlation(scores, exact), overlap(scores, exact, count)])


def rank_correlation(one: Scores, other: Scores) -> Float64[Tensor, ""]:
    """Return Spearman's rank correlation; equal scores share their average rank.

    If all scores in one set are equal, it is 1 if all in the other set are equal too, else 0.
    """
    first, second = (_centred_ranks(scores) for scores in (one, other))
    spreads = first @ first, second @ second
    product = spreads[0] * spreads[1]
    # `product` is at least 0.25 if there is any spread; the clamp avoids dividing by 0 elsewhere
    found = (first @ second) / product.sqrt().clamp(min=0.25)
    return torch.where(product > 0, found, (spreads[0] == spreads[1]).double())


def overlap(one: Scores, other: Scores, count: int) -> Float64[Tensor, ""]:
    """Return the share of the `count` highest in one set that are also highest in the other."""
    return torch.minimum(_places(one, count), _places(other, count)).sum() / count


def _centred_ranks(scores: Scores) -> Float64[Tensor, " candidate"]:
    values = _ordered(scores)
    ascending = values.sort().values
    below = torch.searchsorted(ascending, values)
    up_to = torch.searchsorted(ascending, values, right=True)
    return (below + up_to).double() / 2 - values.shape[0] / 2  # the mean rank


def _places(scores: Scores, count: int) -> Float64[Tensor, " candidate"]:
    """Return each candidate's odds of being among the `count` highest: 0 or 1, but for ties."""
    values = _ordered(scores)
    last = values.topk(count).values[-1]
    above, level = (values > last).double(), (values == last).double()
    return above + level * ((count - above.sum()) / level.sum())


def _ordered(scores: Scores) -> Float64[Tensor, " candidate"]:
    return scores.detach().double().nan_to_num(torch.inf, torch.inf, -torch.inf).contiguous()
