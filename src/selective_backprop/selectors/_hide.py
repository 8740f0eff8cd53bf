"""KAKURENBO: hide the share of lowest losses, if the model predicts those examples surely."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import Odds, Scores
from selective_backprop._memory.history import History
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice, Draw, draw_coins
from selective_backprop.selectors._abstract import (
    AbstractSelector,
    Paced,
    RunningSelector,
    Terms,
)


@final
@dataclass(frozen=True)
class Hide(AbstractSelector):
    """Leave out the candidates of lowest loss, except those that the model is not sure of.

    A candidate is hidden if fewer than `share` of the remembered losses are lower than its own,
    and if the model predicted it correctly with a confidence of at least `confidence`. The rule
    is deterministic unless equal losses straddle the share, as losses that underflowed to 0 may:
    then a coin decides each of them, so that at most the share is hidden on average.

    The model's prediction is inferred from the loss. A true class with half of the probability or
    more is the class predicted, and its probability is the confidence. So for cross-entropies,
    "correct and confident" is exactly `exp(-loss) >= confidence`. Scores must therefore be plain
    cross-entropies in nats, without label smoothing or class weights.

    Args:
        share: at most this share is hidden, in (0, 1); the paper's F.
        confidence: the least confidence of a hidden example, in [1/2, 1); the paper's τ.
        falls: pairs of a fraction of training done, in (0, 1), and the factor for `share` from
            the first epoch that starts there or later, in [0, 1). Fractions ascend, factors
            descend. With no pairs the share stays, and training may be of any length.
        history: how many recent losses are ranked against, at least 1, where each window is
            scored. Where losses are remembered by example, all of them are ranked against.

    Raises:
        ConfigurationError: if a value is out of range.

    Source:
        Nguyen et al. 2023, arXiv:2310.10102, section 3; the falls are those of its ImageNet
        trainings. The paper also divides the learning rate by the share that is trained on,
        which is left to the training loop.
    """

    share: float = 0.3
    confidence: float = 0.7
    falls: tuple[tuple[float, float], ...] = ((0.3, 0.8), (0.6, 0.6), (0.8, 0.4))
    history: int = 1024

    def __post_init__(self) -> None:
        settle(self, check_number, "share", above=0, below=1, hint="0.3 hides up to 30 %")
        # Only a class with at least half of the probability is known to be the one predicted.
        settle(self, check_number, "confidence", least=0.5, below=1, hint="0.7 is the paper's")
        settle(self, check_whole, "history")
        _check_falls(self.falls)

    @property
    def terms(self) -> Terms:
        """Keep `1 - share` once the model is sure of enough; more before, and as it falls."""
        return Terms(
            1.0 - self.share,
            Draw.BERNOULLI,
            self.history,
            promises=False,
            paced=bool(self.falls),
            confidence=True,
        )

    def share_at(self, progress: float) -> float:
        """Return the share that may be hidden when a fraction `progress` of training is done."""
        factors = [factor for fraction, factor in self.falls if fraction <= progress]
        return self.share * factors[-1] if factors else self.share

    def start(self, context: Context) -> RunningSelector:
        """Return the running selector."""
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
    """Return the odds with which each score is among the lowest share of the remembered ones.

    Returns:
        0 or 1, except for equal scores that do not all fit into the share.
    """
    if not len(history):
        return torch.zeros_like(scores, dtype=torch.float64)
    # Rounded up to whole scores, so that a score without ties either fits or does not.
    room = math.ceil(share * len(history)) / len(history)
    lower, not_higher = history.percentiles(scores), history.percentiles(scores, ties=True)
    width = (not_higher - lower).clamp(min=1e-300)  # 0 for a score that is not remembered
    return ((room - lower) / width).clamp(0.0, 1.0)


def _check_falls(falls: tuple[tuple[float, float], ...]) -> None:
    try:
        steps = [(check_number("", at), check_number("", factor)) for at, factor in falls]
        pairs = pairwise([(0.0, 1.0), *steps, (1.0, -math.inf)])
        descend = all(earlier < later and high > low for (earlier, high), (later, low) in pairs)
    except (TypeError, ValueError):  # `falls` does not hold pairs of numbers
        descend = False
    if not descend:
        raise ConfigurationError(
            f"falls={falls!r}: pairs (fraction of training, factor) are needed, the fractions in "
            "(0, 1) and ascending, the factors in [0, 1) and descending; ((0.5, 0.8),) takes a "
            "fifth off the share from half of training on"
        )
