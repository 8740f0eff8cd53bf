"""Reuse scores of earlier epochs: Stale-SB, which skips most selection passes."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from selective_backprop._core.options import check_flag, check_whole, settle
from selective_backprop._memory.ledger import Ledger, Observations
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Needs,
    PassThrough,
    RunningScorer,
    check_inner,
    start_scorer,
)


@final
@dataclass(frozen=True)
class Stale(AbstractScorer):
    """Score each example only every few epochs, and select by the last score in between.

    In between, examples are selected before anything is loaded. A score is used in at most
    `epochs` epochs, counting the one in which it was taken; only the few examples that wait for a
    full window keep theirs longer. An example without a valid score is loaded and scored.

    Args:
        scorer: scores the examples.
        epochs: for how many epochs a score is used, n; at least 1, which scores every time.
        spread: whether each epoch scores an n-th of the examples (by index), so that every
            epoch costs the same; by default all are scored in the same epoch, as in the paper.
        recorded: whether losses that training computed, filed with `SelectiveLoader.record`,
            count as scores too. They come from the model in training mode.

    Raises:
        ConfigurationError: if `epochs` is no whole number from 1, or `scorer` is no scorer or
            remembers scores itself.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 3.3 (StaleSB).
    """

    scorer: AbstractScorer
    epochs: int = 2
    spread: bool = False
    recorded: bool = False

    def __post_init__(self) -> None:
        check_inner(self.scorer, may_defer=True)
        settle(self, check_whole, "epochs")
        settle(self, check_flag, "spread", "recorded")

    @property
    def needs(self) -> Needs:
        """Indices, besides what the wrapped scorer needs."""
        fresh = 1.0 / self.epochs
        return replace(self.scorer.needs, indices=True, remembers=True, fresh=fresh)

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer."""
        return _RunningStale(self, start_scorer(self.scorer, context))


class _RunningStale(PassThrough):
    def __init__(self, spec: Stale, inner: RunningScorer) -> None:
        super().__init__(inner)
        self._spec = spec

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        spec = self._spec
        if spec.epochs == 1:
            return None
        scores, epochs = newest(ledger, recorded=spec.recorded)
        return forget(scores, expired(epochs, epoch, spec.epochs, spread=spec.spread))


def newest(ledger: Ledger, *, recorded: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return each example's newest score and its epoch; `recorded` adds recorded losses."""
    scored = ledger.scored.observe()
    if recorded:
        return merged(scored, ledger.recorded.observe())
    return scored.scores[0], scored.epochs[0]


def merged(scored: Observations, recorded: Observations) -> tuple[np.ndarray, np.ndarray]:
    """Return each example's newer score of two sources, and its epoch; `scored` wins a tie."""
    newer = recorded.epochs[0] > scored.epochs[0]
    scores = np.where(newer, recorded.scores[0], scored.scores[0])
    return scores, np.where(newer, recorded.epochs[0], scored.epochs[0])


def expired(epochs: np.ndarray, epoch: int, good_for: int, *, spread: bool) -> np.ndarray:
    """Return which scores are too old to be used.

    Args:
        epochs: the epochs in which they were taken; -1 for never, which counts as expired.
        epoch: the epoch that starts.
        good_for: for how many epochs a score is used.
        spread: whether each epoch lets an equal share of the examples expire.
    """
    old = (epochs < 0) | (epoch - epochs >= good_for)
    if spread:
        old |= (np.arange(len(epochs)) + epoch) % good_for == 0
    return old


def forget(scores: np.ndarray, lost: np.ndarray) -> Float32[Tensor, " example"] | None:
    """Return scores as `recall` does: NaN where `lost` is True, None if all are NaN."""
    lost = lost | np.isnan(scores)
    if lost.all():
        return None
    return torch.from_numpy(np.where(lost, np.float32(np.nan), scores))
