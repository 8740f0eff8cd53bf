"""Scorers that answer from memory: with stale scores, predicted scores or recorded losses."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from selective_backprop._batches.losses import IGNORED
from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import (
    check_flag,
    check_instance,
    check_number,
    check_whole,
    settle,
)
from selective_backprop._core.types import NO_TARGET, Float32, Int64, RowIndices, Scores
from selective_backprop._memory.ledger import Ledger, Observations
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    PassThrough,
    RunningScorer,
    Stateless,
    check_inner,
    start_scorer,
)
from selective_backprop.scorers._giving_up import chunks, given_up, highest
from selective_backprop.scorers._learned import find_majority, risen
from selective_backprop.scorers._predictors import AbstractPredictor, Average


@final
@dataclass(frozen=True)
class Stale(AbstractScorer):
    """Score each example only every few epochs, and select by its last score in between.

    A score is valid for `epochs` epochs, including the epoch that computed it. An example with a
    valid score is selected or skipped before it is loaded. Any other example is loaded and scored.

    Args:
        scorer: computes the scores, such as `Forward()`.
        epochs: for how many epochs a score is valid, at least 1. With 1, every epoch computes new
            scores.
        spread: whether to spread scoring over the epochs: each epoch scores a different 1/`epochs`
            of the examples. If False, every `epochs`-th epoch scores all, as in the paper below.
        recorded: whether the losses that training records also count as scores (see
            `SelectiveLoader.record`). The model computes these losses in training mode.

    Raises:
        ConfigurationError: if `epochs` is not a whole number of at least 1, or if `scorer` is not a
            scorer or remembers scores itself.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 3.3 (StaleSB).
    """

    scorer: AbstractScorer
    epochs: int = 2
    spread: bool = False
    recorded: bool = False

    def __post_init__(self) -> None:
        check_inner(self.scorer)
        settle(self, check_whole, "epochs")
        settle(self, check_flag, "spread", "recorded")

    @property
    def needs(self) -> Needs:
        """The needs of the wrapped scorer, and indices."""
        return replace(self.scorer.needs, indices=True, remembers=True)

    def start(self, context: Context) -> RunningScorer:
        return Recalling(start_scorer(self.scorer, context), self._recall)

    def _recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        if self.epochs == 1:
            return None
        observed = ledger.scored.observe()
        scores, epochs = observed.scores[0], observed.epochs[0]
        if self.recorded:
            scores, epochs = _merged(observed, ledger.recorded.observe())
        expired = (epochs < 0) | (epoch - epochs >= self.epochs)
        if self.spread:
            expired |= (np.arange(len(epochs)) + epoch) % self.epochs == 0
        return _forget(scores, expired)


def _merged(scored: Observations, recorded: Observations) -> tuple[np.ndarray, np.ndarray]:
    """Return each example's newer score from two sources, and its epoch; `scored` wins a tie."""
    newer = recorded.epochs[0] > scored.epochs[0]
    scores = np.where(newer, recorded.scores[0], scored.scores[0])
    return scores, np.where(newer, recorded.epochs[0], scored.epochs[0])


class Recalling(PassThrough):
    """Scores as the wrapped scorer does, and recalls scores by the given function."""

    def __init__(self, inner: RunningScorer, recall: Callable[[Ledger, int], Any]) -> None:
        super().__init__(inner)
        self._recall = recall

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        return self._recall(ledger, epoch)


def _forget(scores: np.ndarray, lost: np.ndarray) -> Float32[Tensor, " example"] | None:
    """Return scores as `recall` does: NaN where `lost` is True, None if all are NaN.

    If a score is NaN but not lost, its example has no target.
    """
    if lost.all():
        return None
    kept = np.where(np.isnan(scores), np.float32(NO_TARGET), scores)
    return torch.from_numpy(np.where(lost, np.float32(np.nan), kept))


@final
@dataclass(frozen=True)
class Predicted(AbstractScorer):
    """Score each example only every few epochs, and select by a predicted score in between.

    It works like `Stale`, but predicts an example's score from its last scores. All predictions
    are made at the start of each epoch.

    Args:
        scorer: computes the scores, such as `Forward()`.
        predictor: `Average()` or `GaussianProcess()`.
        epochs: number of epochs from one scoring of an example to the next, at least 2. In
            between, the example's score is predicted.

    Raises:
        ConfigurationError: if a value is out of its range, if `scorer` is not a scorer, if `scorer`
            remembers scores itself, or if `predictor` is not a predictor.
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
        """The needs of the wrapped scorer, indices, and as many scores as the predictor reads."""
        depth = self.predictor.depth
        return replace(self.scorer.needs, indices=True, remembers=True, depth=depth)

    def start(self, context: Context) -> RunningScorer:
        return Recalling(start_scorer(self.scorer, context), self._recall)

    def _recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        if ledger.scored.empty:
            return None
        observed = ledger.scored.observe()
        epochs = observed.epochs[0]
        expired = (epochs < 0) | (epoch - epochs >= self.epochs)
        if expired.all():
            return None
        return _forget(self.predictor.predict(observed, epoch), expired)


@final
@dataclass(frozen=True)
class Recorded(AbstractScorer):
    """Score each example by the last loss that training recorded for it.

    Losses are recorded by `SelectiveLoader.loss_fn`, or by your calls of `SelectiveLoader.record`.
    Examples are selected before they are loaded. An example without a recorded loss scores
    infinity, so it is trained on as soon as the selector's rate allows. A recorded loss may be old:
    it dates from the last time that the example was trained on, and comes from the model in
    training mode. If it is unknown, because the example has no target or the loss was not finite,
    the example is kept at the same rate as the others.

    `give_up`, `fades`, `prior` and `trim` need cross-entropies without label smoothing or class
    weights. Classes are known if the recorded targets are class indices, or floats of 0 and 1.
    Without classes, `prior` and `trim` do nothing, and `give_up` treats all examples as one class.

    Args:
        max_age: for how many epochs a loss counts after the epoch that recorded it, at least 1.
            Then the example scores infinity again. With None, losses count for ever.
        rescore: a scorer, such as `Forward()`, that scores the skipped examples at the end of each
            epoch, which takes time. With None, skipped examples keep their old loss.
        highest_of: how many of an example's last recorded losses count, at least 1. The highest of
            them is the score. A number above 1 guards against a loss that was low by chance.
        give_up: a share in (0, 1), such as 0.05, that decides which labels look wrong. Examples
            with such labels are given up: they score minus infinity, the lowest score. An example
            *recovers* if a loss above ln 2 is followed by a loss of at most ln 2. (At ln 2, the
            model gives the target a probability of 1/2.) Hard examples recover, mislabelled ones
            hardly ever do. A limit is set at the lowest loss for which this holds: of the examples
            with a loss at or above it, less than the share `give_up` recovers. An example is given
            up if its last `highest_of` losses all reach the limit. No example is given up before
            half of all examples, and half of its class, have a loss of at most ln 2. If `max_age`
            is set, each epoch lets a different 1/`max_age` of the given-up examples have their
            usual scores, to see whether they recover. If `give_up` is None, none are given up.
        fades: selection ends once examples have been trained on `fades + 1` times on average. The
            average leaves out examples that were never trained on. Until selection ends, low scores
            rise: an error `e = 1 - exp(-loss)` below 1/2 becomes `(2 * e) ** p / 2`, and `p` falls
            from 1 to 0. With None, scores do not rise.
        prior: whether to raise low errors in a class with more than half of the examples. Errors
            `1 - exp(-loss)` below 1/2 in this class are multiplied by `0.5 / (1 - share)`, but rise
            to 1/2 at most; `share` is the class's share of the examples. The error of a model that
            always gives this class the probability `share` thus becomes 1/2.
        trim: whether to give up the examples whose last losses are highest, from the second epoch
            on. Their share is the estimated share of wrong labels (`SelectiveLoader.wrong_labels`).
            Without a clear estimate (`WrongShare.is_clear`), none is given up. No example of a
            class is given up until half of the class's right labels have a loss of at most ln 2.

    Raises:
        ConfigurationError: if a value is out of its range or of the wrong type, if `rescore`
            remembers scores itself, or if `give_up` is used with `highest_of` below 2.
    """

    max_age: int | None = None
    rescore: AbstractScorer | None = None
    highest_of: int = 1
    give_up: float | None = None
    fades: float | None = None
    prior: bool = False
    trim: bool = False

    def __post_init__(self) -> None:
        settle(self, check_whole, "max_age", optional=True)
        settle(self, check_whole, "highest_of")
        hint = "0.05 is one in twenty; with None, no example is given up"
        settle(self, check_number, "give_up", above=0, below=1, optional=True, hint=hint)
        hint = "with 8, selection ends once the average example was trained on nine times"
        settle(self, check_number, "fades", above=0, optional=True, hint=hint)
        settle(self, check_flag, "prior", "trim")
        if self.rescore is not None:
            check_inner(self.rescore)
        if self.give_up is not None and self.highest_of < 2:
            raise ConfigurationError(
                f"give_up={self.give_up} with highest_of={self.highest_of}: it takes two losses to "
                "see whether an example recovers; write highest_of=2"
            )

    @property
    def needs(self) -> Needs:
        """Indices and recorded losses; with `rescore`, also what that scorer needs."""
        inner = Needs() if self.rescore is None else self.rescore.needs
        return replace(
            inner,
            passes=False,
            indices=True,
            remembers=True,
            recordings=True,
            depth=self.highest_of,
            classes=self.give_up is not None or self.prior or self.trim,
            rescores=self.rescore is not None,
        )

    def start(self, context: Context) -> RunningScorer:
        if self.rescore is None:
            return _RunningRecorded(self, _Unscored())
        return _RunningRecorded(self, start_scorer(self.rescore, context))


class _Unscored(Stateless):
    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        raise ConfigurationError("Recorded() takes no scores; it selects by recorded losses")


class _RunningRecorded(Delegating):
    def __init__(self, spec: Recorded, inner: RunningScorer) -> None:
        super().__init__(inner)
        self._spec = spec

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self.inner.score(batch, indices)

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"]:
        recorded, scored = ledger.recorded.on_host(), ledger.scored.on_host()
        done = None if self._spec.fades is None else self._done(ledger, self._spec.fades)
        classes = None if ledger.classes.empty else ledger.classes.on_host().scores[0]
        if classes is not None:  # rows without a target are of no class
            classes = np.where(classes == IGNORED, np.float32(np.nan), classes)
        majority = find_majority(classes) if self._spec.prior and classes is not None else None
        known = np.empty(ledger.examples, np.float32)
        for part in chunks(ledger.examples):
            scores, epochs = recorded.scores[0, part], recorded.epochs[0, part]
            if not ledger.scored.empty:
                scores, epochs = _merged(scored.of(part), recorded.of(part))
            unknown = epochs < 0
            lacking = ~unknown & np.isnan(scores)
            if self._spec.max_age is not None:
                unknown |= epoch - epochs.astype(np.int32) > self._spec.max_age
            if self._spec.highest_of > 1:
                scores = np.fmax(scores, np.fmax.reduce(recorded.scores[:, part]))
            if majority is not None or done is not None:
                own = None if classes is None else classes[part]
                scores = risen(scores, 1.0 - (done or 0.0), majority, own)
            known[part] = np.where(unknown, np.float32(np.inf), scores)
            known[part][lacking] = NO_TARGET
        for lost in self._lost(ledger, recorded, classes):
            if self._spec.max_age is not None:  # each epoch takes some back, in turn
                lost = lost[(lost + epoch) % self._spec.max_age != 0]
            known[lost[known[lost] < np.inf]] = -np.inf  # below any loss; unknown ones stay
        return torch.from_numpy(known)

    def _lost(
        self, ledger: Ledger, recorded: Observations, classes: np.ndarray | None
    ) -> Iterator[Int64[np.ndarray, " row"]]:
        """Yield the examples given up by `give_up`, then those given up by `trim`."""
        if self._spec.give_up is not None:
            yield given_up(recorded.scores, classes, self._spec.give_up)
        wrong = ledger.label_noise.found
        if self._spec.trim and wrong is not None and wrong.is_clear and classes is not None:
            yield highest(recorded.scores[0], classes, wrong.share)

    def _done(self, ledger: Ledger, fades: float) -> float:
        """Return how far low scores have risen, in [0, 1]; it depends on the mean of visits."""
        total, visited = ledger.visits()  # a subset or a sampler may leave examples out for good
        return min(1.0, max(0.0, total / max(1, visited) - 1.0) / fades)
