"""Selectors that leave out candidates with low losses. How many they keep depends on the losses."""

import math
from dataclasses import dataclass
from typing import Any, final

import torch

from selective_backprop._core.options import check_flag, check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import Odds, Scores
from selective_backprop._memory.history import History
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice, Draw, draw_coins
from selective_backprop.selectors._abstract import (
    AbstractSelector,
    Paced,
    RunningSelector,
    Stateless,
    Terms,
)

FALLS = ((0.3, 0.8), (0.6, 0.6), (0.8, 0.4))  # fractions of training, and KAKURENBO's factors


@final
@dataclass(frozen=True)
class Confident(AbstractSelector):
    """Leave out some of the candidates whose true class the model predicts with confidence.

    Scores must be cross-entropies: `exp(-loss)` is then the model's probability of the true class.
    If this probability is at most 1/2, the candidate is kept. Otherwise it is kept with a
    probability of `2 * (1 - exp(-loss))`, but at least `floor`. An example that scores minus
    infinity, as those that `auto` gives up, is never kept.

    Args:
        floor: the lowest probability of being kept, in (0, 1].
        correction: exponent in [0, 1]; a row that is kept with probability `p` has the weight
            `p ** -correction`. With 1, `(weights * losses).sum()` over the kept rows is an unbiased
            estimate of the sum over all candidates, but single rows weigh up to `1 / floor`. With
            0, all kept rows weigh the same, so learned examples count less than without selection.
    """

    floor: float = 0.25
    correction: float = 0.5

    def __post_init__(self) -> None:
        settle(self, check_number, "floor", above=0, most=1, hint="0.25 keeps one in four or more")
        settle(self, check_number, "correction", most=1, hint="1 is unbiased, 0 uses no weights")

    @property
    def terms(self) -> Terms:
        """The rate is halfway between 1, the share kept early in training, and `floor`."""
        rate, weighs = (1.0 + self.floor) / 2.0, self.correction > 0
        return Terms(rate, Draw.BERNOULLI, reweights=weighs, promises=False, confidence=True)

    def start(self, context: Context) -> RunningSelector:
        def toss(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            error = -torch.expm1(-scores.double())  # the probability of all but the true class
            odds = (2.0 * error).clamp(self.floor, 1.0)
            odds.masked_fill_(scores == -torch.inf, 0.0)  # the floor would keep some of these
            rows = draw_coins(odds, generator)
            if not self.correction:
                return Choice(rows)
            return Choice(rows, odds.take(rows).pow(-self.correction).float())

        return Stateless(toss)


@final
@dataclass(frozen=True)
class BelowMean(AbstractSelector):
    """Leave out, at random, some of the candidates that score below the mean of recent scores.

    A candidate below the mean is left out with probability `prune`. If it is kept, it has the
    weight `1 / (1 - prune)`. All other candidates are kept, with the weight 1. As long as no finite
    score is remembered, all candidates are kept.

    With these weights, the paper's, the mean weight of kept rows is above 1, which lengthens
    optimiser steps. By default, all weights are therefore multiplied by the expected share of kept
    rows. This makes the gradient unbiased if candidates' scores are distributed like recent scores.

    Args:
        prune: probability that a candidate below the mean is left out, in [0, 1); the paper's r.
        longer_steps: whether to use the paper's weights unchanged.
        history: number of recent scores in the mean, at least 1. If the strategy remembers each
            example's loss, the mean is over all of these losses instead.
    """

    prune: float = 0.5
    longer_steps: bool = False
    history: int = 1024

    def __post_init__(self) -> None:
        settle(self, check_number, "prune", below=1, hint="0.5 skips half of those below the mean")
        settle(self, check_flag, "longer_steps")
        settle(self, check_whole, "history")

    @property
    def terms(self) -> Terms:
        """The rate is a typical share: it is exact if half of the scores are below the mean."""
        rate = 1.0 - self.prune / 2.0
        return Terms(rate, Draw.BERNOULLI, self.history, reweights=True, promises=False)

    def start(self, context: Context) -> RunningSelector:
        def prune(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            # In the scores' own precision: there the mean of equal scores is not above them.
            mean = history.mean().to(scores)
            kept = 1.0 - self.prune * (scores < mean).double()
            rows = draw_coins(kept, generator)
            weights = kept.take(rows).reciprocal()
            if not self.longer_steps:
                # Without a finite mean nothing is left out, and the weights stay 1.
                share = history.percentiles(mean.reshape(1)).where(mean.isfinite(), 0.0)
                weights = weights * (1.0 - self.prune * share)
            return Choice(rows, weights.float())

        return Stateless(prune)


@final
@dataclass(frozen=True)
class Hide(AbstractSelector):
    """Leave out ("hide") the candidates with the lowest losses, if the model is sure of them.

    A candidate is hidden if two things hold. Its loss is among the lowest `share` of the remembered
    losses. And the model gives its true class, which is then also the predicted one, a probability
    of at least `confidence`. This is taken to be `exp(-loss)`, so losses must be plain
    cross-entropies in nats, without label smoothing or class weights. If equal losses do not all
    fit into the share, a coin toss decides about each.

    Args:
        share: the largest share to hide at first, in (0, 1); the paper's F. After 0.3, 0.6 and 0.8
            of training, the limit is 0.8, 0.6 and 0.4 times this share, from the next epoch on.
        confidence: the lowest probability of a hidden example's true class, in [1/2, 1): τ.
        history: number of recent losses to rank against, at least 1. If the strategy remembers each
            example's loss, candidates are ranked against all of these losses instead.

    Source:
        Nguyen et al. 2023, arXiv:2310.10102, section 3. The share falls as in the paper's ImageNet
        trainings. As in the paper, divide the learning rate by the share that is trained on.
    """

    share: float = 0.3
    confidence: float = 0.7
    history: int = 1024

    def __post_init__(self) -> None:
        settle(self, check_number, "share", above=0, below=1, hint="0.3 hides up to 30 %")
        # A class is certain to be the predicted one only if its probability is at least a half.
        settle(self, check_number, "confidence", least=0.5, below=1, hint="0.7 is the paper's")
        settle(self, check_whole, "history")

    @property
    def terms(self) -> Terms:
        """The rate is `1 - share`, but more is kept while the model is unsure."""
        rate, draw = 1.0 - self.share, Draw.BERNOULLI
        return Terms(rate, draw, self.history, promises=False, paced=True, confidence=True)

    def start(self, context: Context) -> RunningSelector:
        return _RunningHide(self)


class _RunningHide(RunningSelector, Paced):
    def __init__(self, spec: Hide) -> None:
        self._spec, self._progress = spec, 0.0

    def begin(self, progress: float) -> None:
        self._progress = progress

    def select(self, scores: Scores, history: History, generator: torch.Generator) -> Choice:
        sure = scores.double().neg().exp() >= self._spec.confidence
        factor = [1.0, *(factor for begun, factor in FALLS if begun <= self._progress)][-1]
        hidden = _lowest(scores, history, factor * self._spec.share) * sure
        return Choice(draw_coins(1.0 - hidden, generator))

    def state_dict(self) -> dict[str, Any]:
        return {"progress": self._progress}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        (progress,) = Saved(state).fields("progress")
        self._progress = progress.number(0.0, 1.0)


def _lowest(scores: Scores, history: History, share: float) -> Odds:
    """Return each score's odds of being in the history's lowest share: 0 or 1, but for ties."""
    if not len(history):
        return torch.zeros_like(scores, dtype=torch.float64)
    # Rounded up to whole scores, so that a score without ties either fits or does not.
    room = math.ceil(share * len(history)) / len(history)
    lower, not_higher = history.percentiles(scores), history.percentiles(scores, ties=True)
    width = (not_higher - lower).clamp(min=1e-300)  # 0 for a score that is not remembered
    return ((room - lower) / width).clamp(0.0, 1.0)
