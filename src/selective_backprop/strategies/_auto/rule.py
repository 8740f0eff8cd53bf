"""The rule of `auto`: how it scores examples, and which it gives up."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from selective_backprop._batches.losses import IGNORED
from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_flag, settle
from selective_backprop._core.types import NO_TARGET, Float32, Int64, Scores
from selective_backprop._memory.ledger import Ledger
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.schedule import (
    AbstractGate,
    RunningAverage,
    RunningGate,
    Schedule,
    VarianceGate,
)
from selective_backprop.scorers import AbstractMemoryScorer, Forward, Needs
from selective_backprop.scorers._remembered import recent
from selective_backprop.selectors import Confident
from selective_backprop.strategies._strategy import Strategy

FLOOR = 0.1  # the lowest probability of being kept, so that no class vanishes
MAX_AGE = 10  # epochs for which a loss counts after the one that recorded it
HOPELESS = 0.05  # examples are dropped if fewer than this share of those like them are learned
# Trainings on the average example, after its first, until selection ends; endless, it was worse.
FADES = 8.0
# The share skipped above which a stream is scored. An example then costs 2/3 of training on it. On
# deformed MNIST, 1/3 and 1/2 ended with a higher log-loss, and 0.8 was not reached.
PAYS = 2 / 3
# The cross-entropy of a target of probability 1/2. Up to this loss, no other class is likelier.
EVEN = np.float32(np.log(2.0))
# Limits are read off so many examples at most. Of 10 million examples, reading and sorting these
# takes 0.2 s, and twice as many 0.45 s. They give a share of all examples to within 0.0007.
SAMPLED = 2**19
Losses = Float32[np.ndarray, " example"]
Classes = Float32[np.ndarray, " example"]
Rows = Int64[np.ndarray, " row"]


def auto(*, trim: bool = False, stream: bool = False, schedule: Schedule | None = None) -> Strategy:
    """Skip most examples that the model has learned, and drop examples whose labels look wrong.

    You need not choose a rate. An example is kept with probability `2 * e`, clamped to [0.1, 1].
    Its error `e` is `1 - exp(-loss)`, of the higher of its last two training losses. After being
    skipped for ten epochs, an example is trained on again. Errors below 1/2 are raised in a class
    with more than half of all examples, which is easily guessed, and more and more as training goes
    on: after nine visits of the average example, nothing is skipped but what is dropped.

    An example is dropped if its last two losses are so high that, of examples with such losses,
    less than one in twenty has a next loss of at most ln 2 (a probability of 1/2). Each epoch tries
    another tenth of the dropped examples again. The page "auto, the default" tells the whole rule.

    There are no extra forward passes, skipped examples are not loaded, and all kept examples have
    the same weight. Use `SelectiveLoader.loss_fn` as the loss of your loop, or pass plain
    cross-entropies (no label smoothing, no class weights) and targets to `SelectiveLoader.record`.
    Classes are known if targets are class indices, floats of 0 and 1, or distributions over classes
    such as one-hot targets. Otherwise all examples count as one class, no error is raised for its
    class, a rare class may be dropped, and `trim` does nothing.

    Args:
        trim: whether to drop the examples with the highest losses, too, from the second epoch on.
            Their share is `SelectiveLoader.wrong_labels`, if it is clear (`WrongShare.is_clear`).
            Use it with label smoothing (of 0.3, say), or a model learns wrong labels by heart.
        stream: whether examples have no index and come once. Each is then scored by a forward pass,
            a third of the cost of training on it, and its error is that of this loss, never raised.
            None is dropped. By default, everything is trained on while two thirds or less of the
            recent examples would be skipped.
        schedule: when to skip; by default from the second epoch on.
    """
    selector = Confident(FLOOR, correction=0.0)
    if not check_flag("stream", stream):
        return Strategy("auto", Unlearned(trim=trim), selector, schedule or Schedule(1))
    if trim:
        raise ConfigurationError("trim=True needs the losses of earlier epochs: drop stream=True")
    return Strategy("auto", Forward(), selector, schedule or Schedule(gate=LearnedGate()))


@final
@dataclass(frozen=True)
class LearnedGate(AbstractGate):
    """Select while `auto` would skip more than two thirds, on average over recent batches."""

    def start(self, context: Context) -> RunningGate:
        return RunningAverage(VarianceGate(smoothing=0.5), PAYS, share_skipped)


def share_skipped(scores: Scores) -> Tensor:
    rows = scores > NO_TARGET  # also not NaN
    skipped = (1.0 + 2.0 * torch.expm1(-scores.double())).clamp(0.0, 1.0 - FLOOR)
    return skipped.where(rows, 0.0).sum() / rows.sum().clamp(min=1)


@final
@dataclass(frozen=True)
class Unlearned(AbstractMemoryScorer):
    """The scorer of `auto`: losses, infinity if unknown, minus infinity for what is given up."""

    max_age: int = MAX_AGE
    fades: float = FADES
    hopeless: float = HOPELESS
    raises: bool = True  # whether errors on the majority class are raised
    trim: bool = False

    def __post_init__(self) -> None:
        settle(self, check_flag, "trim")

    @property
    def needs(self) -> Needs:
        return replace(super().needs, depth=2, classes=True)

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"]:
        losses, epochs = ledger.recorded.on_host()
        classes = ledger.classes.on_host().scores[0]
        classes = np.where(classes == IGNORED, np.float32(np.nan), classes)  # rows without a target
        total, visited = ledger.visits()  # a subset or a sampler may leave examples out for good
        done = min(1.0, max(0.0, total / max(1, visited) - 1.0) / self.fades)
        raised = classes if self.raises else np.full_like(classes, np.nan)
        scores = risen(np.fmax.reduce(losses), raised, 1.0 - done)
        scores[np.isnan(losses[0])] = np.nan  # the last time, the example had no target
        known = recent(scores, epochs[0], epoch, self.max_age)
        lost, wrong = given_up(losses, classes, self.hopeless), ledger.wrong_labels
        if self.trim and wrong is not None and wrong.is_clear:
            lost = np.concatenate([lost, highest(losses[0], classes, wrong.share)])
        lost = lost[(lost + epoch) % self.max_age != 0]  # each epoch takes some back
        known[lost[known[lost] < np.inf]] = -np.inf  # below any loss; unknown ones stay
        return torch.from_numpy(known)


def risen(losses: Losses, classes: Classes, power: float) -> Losses:
    """Return the losses, with those below ln 2 raised, at most to ln 2.

    A loss l stands for an error e = 1 - exp(-l). Errors on the majority class are first multiplied
    by its factor. Then e becomes (1/2) (2 e)^power: for 1 unchanged, for 0 that of the unlearned.
    """
    low = losses < EVEN
    # 2 e, in [0, 1). `expm1` keeps the digits of small losses. Rounding, or the removal of label
    # smoothing, may leave a loss below 0, where the power would be NaN.
    ratios = -2.0 * np.expm1(-np.maximum(losses[low], 0.0))
    frequent, factor = find_majority(classes)
    ratios[classes[low] == frequent] *= factor
    np.minimum(ratios, 1.0, out=ratios)  # at most "not learned", which is e = 1/2
    found = losses.copy()
    found[low] = -np.log1p(-0.5 * ratios**power)  # the loss of the new error, -log(1 - e)
    return found


def find_majority(classes: Classes) -> tuple[np.float32, np.float32]:
    """Return the class of more than half of the examples, NaN if none, and its errors' factor.

    Unknown classes are NaN. Of many examples, a class of hardly more than half may be missed.
    """
    some = classes[sample(len(classes))]
    some = np.append(some[~np.isnan(some)], np.float32(np.nan))  # the highest
    # If more than half of the numbers are equal, their median is this number, found without a sort.
    middle = np.partition(some, (len(some) - 1) // 2)[(len(some) - 1) // 2]
    known = np.count_nonzero(~np.isnan(classes))
    others = known - np.count_nonzero(classes == middle)
    # A model that always guesses this class is wrong on all other examples. The factor raises their
    # share to 1/2. At least one other example is assumed, so that nothing is divided by 0.
    factor = np.float32(0.5 * known / max(1, others))
    return (middle, factor) if 2 * others < known else (np.float32(np.nan), factor)


def sample(examples: int) -> slice | Rows:
    """Return all examples, or some at random places, since data may be sorted."""
    if examples <= SAMPLED:
        return slice(None)
    return np.random.default_rng(0).integers(examples, size=SAMPLED)


def given_up(losses: Float32[np.ndarray, "lag example"], classes: Classes, share: float) -> Rows:
    """Return the examples with losses so high that less than `share` of such examples recovers.

    An example *recovers* if its loss was above ln 2 and its next loss is not. The higher a loss,
    the fewer do, and mislabelled examples hardly ever do; but this takes some epochs to see.

    All of an example's last losses, newest first and at least two, must reach the lowest such
    limit; missing ones are NaN. A class loses no example before half of it is learned. Unknown
    classes are NaN, and count as one class.
    """
    limit = _limit(losses[:, sample(losses.shape[1])], share)
    if limit == np.inf:
        return np.empty(0, np.int64)
    lost = np.flatnonzero(np.minimum.reduce(losses) >= limit)  # NaN does not reach it
    return lost[_half_learned(losses[0], classes, lost)]


def _limit(losses: Float32[np.ndarray, "lag example"], share: float) -> float:
    """Return the lowest loss at or above which too few recover; infinity if there is none."""
    known = np.isfinite(np.maximum.reduce(losses))
    # Lag 0 is the newest loss, lag 1 the one before: did a high one become low?
    low, before = losses[0, known] <= EVEN, losses[1, known]
    # Before half of the examples are learned, a high loss may only mean that the model is new.
    if 2 * np.count_nonzero(low) < len(low):
        return np.inf
    high = before > EVEN
    ascending, back = np.sort(before[high]), np.sort(before[high & low])
    # For each loss, how many are as high or higher. The first of equal losses counts them all.
    number = np.arange(len(ascending), 0, -1)
    recovered = len(back) - np.searchsorted(back, ascending)
    # One more recovery is assumed, since a share of few examples says little. With 0.05, no example
    # is given up before twenty have been seen without a recovery.
    hopeless = (recovered + 1) / (number + 1) < share
    return float(ascending[np.argmax(hopeless)]) if hopeless.any() else np.inf


def highest(newest: Losses, classes: Classes, share: float) -> Rows:
    """Return the examples with the highest last losses above ln 2: `share` of those that have one.

    A class loses none before half of its right labels are learned. All classes are assumed to have
    the same share of right labels. Missing losses and unknown classes are NaN.
    """
    some = newest[sample(len(newest))]
    some = some[~np.isnan(some)]
    limit = np.quantile(some, 1.0 - share) if len(some) else np.inf
    lost = np.flatnonzero(newest > max(EVEN, limit))
    return lost[_half_learned(newest, classes, lost, 1.0 - share)]


def _half_learned(newest: Losses, classes: Classes, lost: Rows, right: float = 1.0) -> np.ndarray:
    """Return which `lost` are of a class that has learned half of its share of `right` labels."""
    first, last = (np.nan_to_num(f.reduce(classes)) for f in (np.fmin, np.fmax))
    # If class numbers are far apart, the highest count as one class, so that counts stay few.
    most = min(int(last - first) + 1, len(classes))
    numbered = np.minimum(classes.astype(np.float64) - first + 1.0, most)
    places = np.nan_to_num(numbered).astype(np.int64)  # 0 is the class of those without any
    known = np.bincount(places[np.isfinite(newest)], minlength=most + 1)
    learned = np.bincount(places[newest <= EVEN], minlength=most + 1)
    return (2 * learned >= right * known)[places[lost]]
