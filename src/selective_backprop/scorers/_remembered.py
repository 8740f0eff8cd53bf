"""Scorers that select from remembered scores: stale ones, predicted ones, and recorded losses."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import (
    check_flag,
    check_instance,
    check_number,
    check_whole,
    settle,
)
from selective_backprop._core.types import Float32, Int64, RowIndices, Scores
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
    """Score each example only every few epochs, and select by the last score in between.

    In between, examples are selected before they are loaded. A score is valid for `epochs` epochs,
    including the epoch that computed it. Examples are selected from windows of candidates; while an
    example waits for its window to fill, its score stays valid. An example without a valid score is
    loaded and scored.

    Args:
        scorer: scores the examples.
        epochs: number of epochs, n, in which a score is valid; with 1, every epoch computes new
            scores.
        spread: whether each epoch scores another n-th of the examples (by index), so that all
            epochs cost the same. By default all examples are scored in the same epoch, as in the
            paper.
        recorded: whether losses passed to `SelectiveLoader.record` count as scores too. These
            losses come from the model in training mode.

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
        fresh = 1.0 / self.epochs
        return replace(self.scorer.needs, indices=True, remembers=True, fresh=fresh)

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
    """Return each example's newer score of two sources, and its epoch; `scored` wins a tie."""
    newer = recorded.epochs[0] > scored.epochs[0]
    scores = np.where(newer, recorded.scores[0], scored.scores[0])
    return scores, np.where(newer, recorded.epochs[0], scored.epochs[0])


class Recalling(PassThrough):
    """Scores as the wrapped scorer does; `recall` is as given."""

    def __init__(self, inner: RunningScorer, recall: Callable[[Ledger, int], Any]) -> None:
        super().__init__(inner)
        self._recall = recall

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        return self._recall(ledger, epoch)


def _forget(scores: np.ndarray, lost: np.ndarray) -> Float32[Tensor, " example"] | None:
    """Return scores as `recall` does: NaN where `lost` is True, None if all are NaN."""
    lost = lost | np.isnan(scores)
    if lost.all():
        return None
    return torch.from_numpy(np.where(lost, np.float32(np.nan), scores))


@final
@dataclass(frozen=True)
class Predicted(AbstractScorer):
    """Score each example only every few epochs, and select by a predicted score in between.

    It works like `Stale`, but predicts each score from the example's last scores. All predictions
    are made at the start of the epoch. An example whose last score is too old is loaded and scored.

    Args:
        scorer: scores the examples.
        predictor: predicts a score from the example's last scores.
        epochs: number of epochs in which a score is valid, including the epoch that computed it. At
            least 2: with 1, nothing would be predicted.

    Raises:
        ConfigurationError: if a value is out of its range, `scorer` is not a scorer or remembers
            scores itself, or `predictor` is not a predictor.
    """

    scorer: AbstractScorer
    predictor: AbstractPredictor = Average()
    epochs: int = 3

    def __post_init__(self) -> None:
        check_inner(self.scorer)
        check_instance("predictor", self.predictor, AbstractPredictor, "Average()")
        settle(self, check_whole, "epochs", least=2, hint="with 1 nothing is predicted")

    @property
    def needs(self) -> Needs:
        """The needs of the wrapped scorer, indices, and as many scores as the predictor reads."""
        depth, fresh = self.predictor.depth, 1.0 / self.epochs
        return replace(self.scorer.needs, indices=True, remembers=True, depth=depth, fresh=fresh)

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

    Your training loop passes its losses to `SelectiveLoader.record`. Examples are selected before
    they are loaded. An example without a known loss scores infinity, so it is trained on. A loss
    dates from the last time the example was trained on, which may be long ago. The model was then
    in training mode.

    `give_up`, `fades` and `prior` need plain cross-entropies. `give_up` and `prior` tell classes
    apart only if the recorded targets are class indices or binary.

    Args:
        max_age: for how many epochs a loss counts, after the epoch that recorded it. Then the
            example is trained on again. None: losses count for ever.
        rescore: a scorer for the examples that an epoch left out, used at the epoch's end. Its
            passes count as scoring cost. With None, these examples keep their old loss.
        highest_of: number of last recorded losses; the highest of them is the example's score. More
            than 1 guards against lucky guesses.
        give_up: a share in (0, 1). An example recovers if a loss above ln 2 is followed by one of
            at most ln 2 (the model gives its target at least 1/2). The higher the loss, the fewer
            examples recover. The limit is the lowest loss from which on fewer than this share
            recover. If an example's last `highest_of` losses all reach the limit, it is given up:
            it scores minus infinity, the lowest rank. Mislabelled examples do not recover, hard
            ones do. If `max_age` is set, each epoch takes back another `max_age`-th of the examples
            given up, to see whether they recover. No example is given up until half of all
            examples, and half of its class, have a loss of at most ln 2. None: no example is given
            up.
        fades: number of visits after which selection ends. A visit is one training on an example.
            The number is a mean over the examples that were visited, and does not count first
            visits. Until then, low scores rise: an error `e = 1 - exp(-loss)` below 1/2 becomes
            `(2 * e) ** p / 2`, and `p` falls from 1 to 0 as visits grow. None: scores do not rise.
        prior: whether to increase errors `1 - exp(-loss)` below 1/2 in a class with more than
            half of the examples. They are multiplied by a factor, but rise to 1/2 at most. The
            factor turns `1 - share`, the error of always guessing this class, into 1/2.
        trim: whether to give up the estimated share of wrong labels too
            (`SelectiveLoader.wrong_labels`), if the estimate is clear (`WrongShare.is_clear`). From
            the second epoch on, this gives up the examples with the highest last losses. It spares
            a class until half of its right labels are learned.

    Raises:
        ConfigurationError: if `max_age` or `highest_of` is not a whole number of at least 1,
            `give_up` or `fades` is out of its range, or `prior` or `trim` is not a bool. Also if
            `rescore` cannot be wrapped, or if `give_up` is used with `highest_of` below 2.
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
        hint = "0.05 is one in twenty, None gives up none"
        settle(self, check_number, "give_up", above=0, below=1, optional=True, hint=hint)
        hint = "8 ends selection once examples were trained on nine times, on average"
        settle(self, check_number, "fades", above=0, optional=True, hint=hint)
        settle(self, check_flag, "prior", "trim")
        if self.rescore is not None:
            check_inner(self.rescore)
        if self.give_up is not None and self.highest_of < 2:
            raise ConfigurationError(
                f"give_up={self.give_up} with highest_of={self.highest_of}: whether examples "
                "recover is seen by at least two losses of each; write highest_of=2"
            )

    @property
    def needs(self) -> Needs:
        """Indices and recorded losses; with `rescore`, also the needs of this scorer."""
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
        raise ConfigurationError("Recorded() takes no scores; it remembers recorded ones")


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
        majority = find_majority(classes) if self._spec.prior and classes is not None else None
        known = np.empty(ledger.examples, np.float32)
        for part in chunks(ledger.examples):
            scores, epochs = recorded.scores[0, part], recorded.epochs[0, part]
            if not ledger.scored.empty:
                scores, epochs = _merged(scored.of(part), recorded.of(part))
            unknown = (epochs < 0) | np.isnan(scores)
            if self._spec.max_age is not None:
                unknown |= epoch - epochs.astype(np.int32) > self._spec.max_age
            if self._spec.highest_of > 1:
                scores = np.fmax(scores, np.fmax.reduce(recorded.scores[:, part]))
            if majority is not None or done is not None:
                own = None if classes is None else classes[part]
                scores = risen(scores, 1.0 - (done or 0.0), majority, own)
            known[part] = np.where(unknown, np.float32(np.inf), scores)
        for lost in self._lost(ledger, recorded, classes):
            if self._spec.max_age is not None:  # some are taken back in turn
                lost = lost[(lost + epoch) % self._spec.max_age != 0]
            known[lost[known[lost] < np.inf]] = -np.inf  # below any loss; not what is unknown
        return torch.from_numpy(known)

    def _lost(
        self, ledger: Ledger, recorded: Observations, classes: np.ndarray | None
    ) -> Iterator[Int64[np.ndarray, " row"]]:
        """Yield the examples that are given up, by one rule and by the other."""
        if self._spec.give_up is not None:
            yield given_up(recorded.scores, classes, self._spec.give_up)
        wrong = ledger.label_noise.found
        if self._spec.trim and wrong is not None and wrong.is_clear and classes is not None:
            yield highest(recorded.scores[0], classes, wrong.share)

    def _done(self, ledger: Ledger, fades: float) -> float:
        """Return how far low scores have risen, in [0, 1], by the mean of visits."""
        total, visited = ledger.visits()  # a subset or a sampler may leave examples out for good
        return min(1.0, max(0.0, total / max(1, visited) - 1.0) / fades)
