"""Scorers that answer from memory: with stale scores, predicted scores or recorded losses."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_flag, check_instance, check_whole, settle
from selective_backprop._core.types import NO_TARGET, Float32, RowIndices, Scores
from selective_backprop._memory.ledger import Ledger
from selective_backprop._sampling.context import Context, Unchanging
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    check_inner,
    scorer_parts,
    start_scorer,
)
from selective_backprop.scorers._predictors import AbstractPredictor, Average


class AbstractMemoryScorer(AbstractScorer):
    """A base class for scorers that score examples from memory: you write `recall`.

    Its `needs` are those of a scorer that only reads recorded losses; then an example with a score
    of NaN counts as one with a score of infinity. If your class has a field `scorer`, this scores
    such examples once they are loaded; `needs` must then be those of `scorer`, and `remembers`.
    """

    @property
    def needs(self) -> Needs:
        return Needs(passes=False, indices=True, remembers=True, recordings=True)

    @abstractmethod
    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        """Return the score of every example, before epoch `epoch`, as `RunningScorer.recall`."""

    def start(self, context: Context) -> RunningScorer:
        _, *inner = scorer_parts(self)  # the scorer that it wraps, if it does
        running = [start_scorer(each, context) for each in inner] or [_Unscored()]
        return Recalling(running[0], self.recall)


class Recalling(Delegating):
    def __init__(self, inner: RunningScorer, recall: Callable[[Ledger, int], Any]) -> None:
        super().__init__(inner)
        self._recall = recall

    @property
    def ahead(self) -> int:
        return self.inner.ahead

    def begin(self, batch: Any, indices: RowIndices | None) -> Callable[[], Scores]:
        return self.inner.begin(batch, indices)

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        known = self._recall(ledger, epoch)
        if known is None or not isinstance(self.inner, _Unscored):
            return known
        return known.masked_fill(known.isnan(), torch.inf)


class _Unscored(Unchanging, RunningScorer):
    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        raise ConfigurationError("this scorer takes no scores; it selects by what is remembered")


@final
@dataclass(frozen=True)
class Stale(AbstractMemoryScorer):
    """Score each example only every few epochs, and select by its last score in between.

    A score is valid for `epochs` epochs, including the epoch that computed it. An example with a
    valid score is selected or skipped before it is loaded. Any other example is loaded and scored.

    Args:
        scorer: computes the scores, such as `Forward()`; it must not remember scores itself.
        epochs: for how many epochs a score is valid, at least 1; with 1, scores are always new.
        spread: whether each epoch scores a different 1/`epochs` of the examples. If False, every
            `epochs`-th epoch scores all, as in the paper below.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 3.3 (StaleSB).
    """

    scorer: AbstractScorer
    epochs: int = 2
    spread: bool = False

    def __post_init__(self) -> None:
        check_inner(self.scorer)
        settle(self, check_whole, "epochs")
        settle(self, check_flag, "spread")

    @property
    def needs(self) -> Needs:
        return replace(self.scorer.needs, indices=True, remembers=True)

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        if self.epochs == 1:
            return None
        observed = ledger.scored.observe()
        scores, epochs = observed.scores[0], observed.epochs[0]
        expired = (epochs < 0) | (epoch - epochs >= self.epochs)
        if self.spread:
            expired |= (np.arange(len(epochs)) + epoch) % self.epochs == 0
        return _forget(scores, expired)


def _forget(scores: np.ndarray, lost: np.ndarray) -> Float32[Tensor, " example"] | None:
    """Return scores as `recall` does: NaN where `lost`, None if all are. Other NaNs: no target."""
    if lost.all():
        return None
    kept = np.where(np.isnan(scores), np.float32(NO_TARGET), scores)
    return torch.from_numpy(np.where(lost, np.float32(np.nan), kept))


@final
@dataclass(frozen=True)
class Predicted(AbstractMemoryScorer):
    """Score each example only every few epochs, and select by a predicted score in between.

    All predictions are made at the start of each epoch, each from the example's last scores.

    Args:
        scorer: as for `Stale`.
        predictor: `Average()`, `GaussianProcess()` or `sb.experimental.Crossing()`.
        epochs: number of epochs from one scoring of an example to the next, at least 2.
    """

    scorer: AbstractScorer
    predictor: AbstractPredictor = Average()
    epochs: int = 3

    def __post_init__(self) -> None:
        check_inner(self.scorer)
        check_instance("predictor", self.predictor, AbstractPredictor, "Average()")
        settle(self, check_whole, "epochs", least=2, hint="with 1, nothing is predicted")

    @property
    def needs(self) -> Needs:
        depth = self.predictor.depth
        return replace(self.scorer.needs, indices=True, remembers=True, depth=depth)

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        observed = ledger.scored.observe()
        epochs = observed.epochs[0]
        expired = (epochs < 0) | (epoch - epochs >= self.epochs)
        if expired.all():  # do not ask the predictor
            return None
        return _forget(self.predictor.predict(observed, epoch), expired)


@final
@dataclass(frozen=True)
class Recorded(AbstractMemoryScorer):
    """Score each example by the last loss that training recorded for it.

    Losses are recorded by `SelectiveLoader.loss_fn` or `SelectiveLoader.record`, in training mode.
    Examples are selected before they are loaded. An example without a recorded loss scores
    infinity, so it is trained on as soon as the selector's rate allows. If its loss is unknown,
    because it has no target or was not finite, it is kept at the same rate as the others.

    Args:
        max_age: for how many epochs a loss counts after the epoch that recorded it, at least 1.
            Then the example scores infinity again. With None, losses count for ever.
        rescore: a scorer, such as `Forward()`, that scores the skipped examples at the end of each
            epoch, which takes time. With None, skipped examples keep their old loss.
    """

    max_age: int | None = None
    rescore: AbstractScorer | None = None

    def __post_init__(self) -> None:
        settle(self, check_whole, "max_age", optional=True)
        if self.rescore is not None:
            check_inner(self.rescore)

    @property
    def needs(self) -> Needs:
        if self.rescore is None:
            return super().needs
        own = {"rescores": True, "indices": True, "remembers": True, "recordings": True}
        return replace(self.rescore.needs, passes=False, **own)

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"]:
        scores, epochs = (each[0] for each in ledger.recorded.on_host())
        rescored, since = (each[0] for each in ledger.scored.on_host())
        newer = epochs > since
        scores, epochs = np.where(newer, scores, rescored), np.where(newer, epochs, since)
        return torch.from_numpy(recent(scores, epochs, epoch, self.max_age))


def recent(
    losses: np.ndarray, epochs: np.ndarray, epoch: int, max_age: int | None
) -> Float32[np.ndarray, " example"]:
    """Return losses as scores: infinity where there is none or it is older than `max_age`."""
    expired = epochs < 0
    if max_age is not None:
        expired = expired | (epoch - epochs.astype(np.int32) > max_age)
    known = np.where(expired, np.float32(np.inf), losses)
    known[np.isnan(losses) & (epochs >= 0)] = NO_TARGET
    return known
