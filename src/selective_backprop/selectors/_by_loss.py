"""Selectors that leave out candidates of low loss, or of none; how many depends on the losses."""

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

_FLOOR = "0.25 keeps at least one in four"
FALLS = ((0.3, 0.8), (0.6, 0.6), (0.8, 0.4))  # fractions of training, and KAKURENBO's factors


@final
@dataclass(frozen=True)
class Confident(AbstractSelector):
    """Leave out some of the candidates for which the model is confident of the true class.

    Losses are read as cross-entropies: the model gives the true class the probability
    `exp(-loss)`. If this probability is at most a half, the candidate is kept. Otherwise it is
    kept with the probability `2 * (1 - exp(-loss))`, but at least `floor`.
    High losses have no advantage over middling ones, because the highest are often noise.

    An example that scores minus infinity is never kept. `Recorded` gives this score to examples
    whose labels look wrong.

    Args:
        floor: the lowest odds, in (0, 1].
        correction: exponent in [0, 1]; a kept row weighs `odds ** -correction`. With 1, `(weights *
            losses).sum()` over the kept rows is an unbiased estimate of the sum over all
            candidates, but single rows count up to `1 / floor` times. With 0, all kept rows weigh
            the same, and learned examples count less than without selection.

    Raises:
        ConfigurationError: if a value is out of its range.
    """

    floor: float = 0.25
    correction: float = 0.5

    def __post_init__(self) -> None:
        settle(self, check_number, "floor", above=0, most=1, hint=_FLOOR)
        hint = "1 is unbiased, 0 weighs all alike"
        settle(self, check_number, "correction", most=1, hint=hint)

    @property
    def terms(self) -> Terms:
        """Keep all at first and at least `floor` later; the rate is the mean of 1 and `floor`."""
        rate = (1.0 + self.floor) / 2.0
        reweights = self.correction > 0
        return Terms(rate, Draw.BERNOULLI, reweights=reweights, promises=False, confidence=True)

    def start(self, context: Context) -> RunningSelector:
        def toss(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            odds = (2.0 * error_probability(scores)).clamp(self.floor, 1.0)
            odds.masked_fill_(scores == -torch.inf, 0.0)  # given up; the floor would keep some
            rows = draw_coins(odds, generator)
            if not self.correction:
                return Choice(rows)
            return Choice(rows, odds.take(rows).pow(-self.correction).float())

        return Stateless(toss)


def error_probability(losses: Scores) -> Odds:
    """Return `1 - exp(-loss)`, at least 0: for cross-entropies, the odds of all other classes."""
    return (-torch.expm1(-losses.double())).clamp(min=0.0)


@final
@dataclass(frozen=True)
class Nonzero(AbstractSelector):
    """Keep every candidate whose score is not exactly 0.

    If a score of 0 means a gradient of 0, as with a hinge loss, the model would have learned
    nothing from the examples left out.
    """

    @property
    def terms(self) -> Terms:
        """Keep all that do not score 0; the rate of 1 says that most are expected to be kept."""
        return Terms(1.0, Draw.BERNOULLI, promises=False)

    def start(self, context: Context) -> RunningSelector:
        return Stateless(lambda scores, history, generator: Choice(scores.nonzero().flatten()))


@final
@dataclass(frozen=True)
class BelowMean(AbstractSelector):
    """Prune candidates that score below the mean of the remembered scores, each by a coin toss.

    A candidate below the mean is left out with probability `prune` and weighs `1 / (1 - prune)` if
    it stays. All other candidates stay and weigh 1. If no scores are remembered, all candidates
    stay.

    The weights above are the paper's. With them, kept rows weigh more than 1 on average, so steps
    are longer. By default, all weights are multiplied by the expected share of kept rows, so that
    `(weights * losses).mean()` is unbiased. This assumes that candidates score like the remembered
    examples.

    Args:
        prune: probability that a candidate below the mean is left out, in [0, 1); the paper's r.
        longer_steps: use the paper's weights as they are.
        history: number of recent scores in the mean, at least 1. If losses are remembered by
            example, the mean is over all of them instead.

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
        """Keep `1 - prune / 2` if half of the scores are below the mean; often more are."""
        rate = 1.0 - self.prune / 2.0
        return Terms(rate, Draw.BERNOULLI, self.history, reweights=True, promises=False)

    def start(self, context: Context) -> RunningSelector:
        def prune(scores: Scores, history: History, generator: torch.Generator) -> Choice:
            # In the scores' own precision, in which the mean of equal scores is not above them.
            mean = history.mean().to(scores)
            kept = 1.0 - self.prune * (scores < mean).double()
            rows = draw_coins(kept, generator)
            weights = kept.take(rows).reciprocal()
            if not self.longer_steps:
                # Without a finite mean nothing was pruned, and the weights stay 1.
                share = history.percentiles(mean.reshape(1)).where(mean.isfinite(), 0.0)
                weights = weights * (1.0 - self.prune * share)
            return Choice(rows, weights.float())

        return Stateless(prune)


@final
@dataclass(frozen=True)
class Hide(AbstractSelector):
    """Leave out the candidates of lowest loss, if the model is sure of them.

    A candidate is hidden if less than `share` of the remembered losses are lower than its own, and
    if the model predicted it correctly with a confidence of at least `confidence`. If many equal
    losses lie at the limit of the share, such as losses that underflowed to 0, a coin toss decides
    about each of them. On average, at most the share is then hidden.

    The loss shows both: a true class with at least half of the probability is the predicted class,
    and its probability is the confidence. So "correct and confident" means `exp(-loss) >=
    confidence`. Losses must be plain cross-entropies in nats, without label smoothing or class
    weights.

    Args:
        share: the largest share to hide, in (0, 1); the paper's F. As training proceeds, the share
            falls: to 0.8 of this after 0.3 of training, to 0.6 after 0.6, and to 0.4 after 0.8. It
            does not change within an epoch.
        confidence: an example is hidden only if the model's confidence is at least this, in
            [1/2, 1); the paper's τ.
        history: number of recent losses to rank against, at least 1. If losses are remembered by
            example, candidates are ranked against all of them instead.

    Raises:
        ConfigurationError: if a value is out of range.

    Source:
        Nguyen et al. 2023, arXiv:2310.10102, section 3; the share falls as in its ImageNet
        trainings. The paper also divides the learning rate by the share that is trained on. Here
        your training loop has to do so.
    """

    share: float = 0.3
    confidence: float = 0.7
    history: int = 1024

    def __post_init__(self) -> None:
        settle(self, check_number, "share", above=0, below=1, hint="0.3 hides up to 30 %")
        # Only a class with at least half of the probability is known to be the one predicted.
        settle(self, check_number, "confidence", least=0.5, below=1, hint="0.7 is the paper's")
        settle(self, check_whole, "history")

    @property
    def terms(self) -> Terms:
        """Keep `1 - share`; more while the model is sure of few examples or after `share` fell."""
        return Terms(
            1.0 - self.share,
            Draw.BERNOULLI,
            self.history,
            promises=False,
            paced=True,
            confidence=True,
        )

    def share_at(self, progress: float) -> float:
        """Return the share that may be hidden when a fraction `progress` of training is done."""
        factors = [factor for fraction, factor in FALLS if fraction <= progress]
        return self.share * factors[-1] if factors else self.share

    def start(self, context: Context) -> RunningSelector:
        return _RunningHide(self)


class _RunningHide(RunningSelector, Paced):
    def __init__(self, spec: Hide) -> None:
        self._spec = spec
        self._progress = 0.0

    def begin(self, progress: float) -> None:
        self._progress = progress

    def select(self, scores: Scores, history: History, generator: torch.Generator) -> Choice:
        sure = scores.double().neg().exp() >= self._spec.confidence
        hidden = _lowest(scores, history, self._spec.share_at(self._progress)) * sure
        return Choice(draw_coins(1.0 - hidden, generator))

    def state_dict(self) -> dict[str, Any]:
        return {"progress": self._progress}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        (progress,) = Saved(state).fields("progress")
        self._progress = progress.number(0.0, 1.0)


def _lowest(scores: Scores, history: History, share: float) -> Odds:
    """Return the odds of each to be in the lowest share of the history; 0 or 1, ties aside."""
    if not len(history):
        return torch.zeros_like(scores, dtype=torch.float64)
    # Rounded up to whole scores, so that a score without ties either fits or does not.
    room = math.ceil(share * len(history)) / len(history)
    lower, not_higher = history.percentiles(scores), history.percentiles(scores, ties=True)
    width = (not_higher - lower).clamp(min=1e-300)  # 0 for a score that is not remembered
    return ((room - lower) / width).clamp(0.0, 1.0)
