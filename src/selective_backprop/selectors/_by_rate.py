"""Selectors that keep a given share of the candidates, at random or by score."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from selective_backprop._core.options import check_number, check_rate, check_whole, choose, settle
from selective_backprop._core.types import Scores
from selective_backprop._memory.history import History
from selective_backprop._sampling import draws
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice, Draw, DrawName, draw_coins
from selective_backprop.selectors._abstract import (
    AbstractSelector,
    RunningSelector,
    Stateless,
    Terms,
)


@final
@dataclass(frozen=True)
class Everything(AbstractSelector):
    """Keep every candidate, so that batches pass through unchanged."""

    @property
    def terms(self) -> Terms:
        return Terms(rate=1.0, needs_scores=False, keeps_everything=True)

    def start(self, context: Context) -> RunningSelector:
        return Stateless(lambda scores, *_: Choice(torch.arange(len(scores), device=scores.device)))


@final
@dataclass(frozen=True)
class Uniform(AbstractSelector):
    """Keep each candidate with the same probability.

    Args:
        rate: share of the candidates to keep, in (0, 1].
        draw: `"exact"` draws one full batch from every `batch_size / rate` candidates.
            `"bernoulli"` tosses a coin for each candidate, so the number of kept candidates varies.
    """

    rate: float
    draw: Draw | DrawName = Draw.EXACT

    def __post_init__(self) -> None:
        settle(self, check_rate, "rate")
        settle(self, choose, "draw", kind=Draw)

    @property
    def terms(self) -> Terms:
        return Terms(self.rate, Draw(self.draw), needs_scores=False)

    def start(self, context: Context) -> RunningSelector:
        def draw(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            if self.draw is Draw.BERNOULLI:
                odds = torch.full_like(scores, self.rate, dtype=torch.float64)
                return Choice(draw_coins(odds, generator))
            size = scores.shape[0]
            return Choice(draws.draw_uniformly(size, context.quota(size), generator, scores.device))

        return Stateless(draw)


@dataclass(frozen=True)
class _Extremes(AbstractSelector):
    rate: float
    largest: ClassVar[bool]

    def __post_init__(self) -> None:
        settle(self, check_rate, "rate")

    @property
    def terms(self) -> Terms:
        return Terms(self.rate)

    def start(self, context: Context) -> RunningSelector:
        def take(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            count = context.quota(scores.shape[0])
            return Choice(scores.topk(count, largest=self.largest).indices.sort().values)

        return Stateless(take)


@final
class Top(_Extremes):
    """Keep those with the highest scores of the next `batch_size / rate` candidates, a window.

    Args:
        rate: share of each window to keep, in (0, 1].
    """

    largest = True


@final
class Bottom(_Extremes):
    """Keep the candidates with the lowest scores of each window, as `Top` keeps the highest.

    Args:
        rate: share of each window to keep, in (0, 1].
    """

    largest = False


@final
@dataclass(frozen=True)
class Percentile(AbstractSelector):
    """Keep each candidate with a probability that grows with the rank of its loss.

    If a candidate's loss exceeds a share `q` of the recent losses, its odds are `q ** beta`.

    Args:
        beta: selectivity, at least 0. With 0, all is kept; with 1, about 1/2; with 2, about 1/3.
        draw: `"exact"` draws one full batch from every `(beta + 1) * batch_size` candidates, with
            probabilities as near to `q ** beta` as a full batch allows. `"bernoulli"` tosses a coin
            for each candidate, as the paper does, so the number of kept candidates varies.
        history: number of recent losses that a loss is ranked against, the paper's R; at least 1.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 3. As in the authors' code, a candidate's loss
        is added to the recent losses before it is ranked. `q` is the share of lower losses.
    """

    beta: float
    draw: Draw | DrawName = Draw.EXACT
    history: int = 1024

    def __post_init__(self) -> None:
        settle(self, check_number, "beta", hint="2 keeps about a third")
        settle(self, choose, "draw", kind=Draw)
        settle(self, check_whole, "history")

    @property
    def terms(self) -> Terms:
        return Terms(1.0 / (self.beta + 1.0), Draw(self.draw), self.history)

    def start(self, context: Context) -> RunningSelector:
        def exact(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            count = context.quota(scores.shape[0])
            if scores.device.type == "cpu":  # small NumPy arrays cost less than small tensors
                wanted = history.percentiles(scores).numpy() ** self.beta
                odds = draws.tilt_on_host(torch.from_numpy(wanted), count)
            else:
                odds = draws.tilt_on_device(wanted_on_device(scores, history), count)
            return Choice(draws.take_exactly(odds, count, generator))

        table: list[Tensor] = []  # shares, and the probability of each as `with_room` returns it

        def wanted_on_device(scores: Scores, history: History) -> Tensor:
            if not len(history):
                return draws.with_room(history.percentiles(scores))
            places, shares = history.places(scores)
            if not table or table[0] is not shares:
                table[:] = shares, draws.with_room(shares.pow(self.beta))
            return table[1].index_select(1, places)

        def bernoulli(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            return Choice(draw_coins(history.percentiles(scores).pow(self.beta), generator))

        return Stateless(exact if self.draw is Draw.EXACT else bernoulli)


@final
@dataclass(frozen=True)
class Proportional(AbstractSelector):
    """Draw candidates with replacement, with probabilities proportional to their scores.

    Each row of a batch is drawn from the same `n = presample * batch_size` candidates. A candidate
    whose score is a share `p` of the sum of all `n` scores is drawn with probability `p`, and its
    weight is `(n * p) ** -bias`. A batch can hold a candidate several times.

    Negative scores count as 0. If no score is positive, all candidates are equally likely. If some
    scores are infinite, only these candidates are drawn.

    Args:
        presample: number of candidates for each row of a training batch, more than 1; the paper's
            B / b. With 3, a third of the candidates is drawn.
        bias: exponent of the weights, in [0, 1]. With 1, the weighted mean loss is an unbiased
            estimate of the candidates' mean loss. With 0, there are no weights, so the mean loss
            leans towards candidates with high scores.

    Source:
        Katharopoulos and Fleuret 2018, arXiv:1803.00942, algorithm 1.
    """

    presample: float = 3.0
    bias: float = 1.0

    def __post_init__(self) -> None:
        hint = "a batch is drawn from more candidates than it has rows"
        settle(self, check_number, "presample", above=1, hint=hint)
        settle(self, check_number, "bias", most=1, hint="1 is unbiased, 0 uses no weights")

    @property
    def terms(self) -> Terms:
        return Terms(1.0 / self.presample, reweights=self.bias > 0.0)

    def start(self, context: Context) -> RunningSelector:
        def draw(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            size = scores.shape[0]
            mass = scores.double().clamp(min=0.0)
            infinite = mass.isposinf()
            mass = torch.where(infinite.any(), infinite.double(), mass)
            mass = mass.where(mass.sum() > 0.0, 1.0)  # a branch would make the host wait
            shares = mass / mass.sum()
            count, place = context.quota(size), shares.device
            tosses = torch.rand(count, generator=generator, device=place, dtype=shares.dtype)
            ends = shares.cumsum(0)
            # After rounding, the last end may not be 1, so the tosses are scaled to it. Even the
            # highest toss, 1 - 2**-53, then stays below it. Sorted tosses give ascending rows.
            rows = torch.searchsorted(ends, tosses.sort().values * ends[-1:], right=True)
            if self.bias == 0.0:
                return Choice(rows)
            return Choice(rows, (shares.take(rows) * size).pow(-self.bias).float())

        return Stateless(draw)
