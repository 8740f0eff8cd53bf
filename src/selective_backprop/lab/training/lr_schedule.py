"""What a run's learning rate follows: the run itself, or a count that published schedules go by."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import selective_backprop as sb
from selective_backprop.lab.budget import Length
from selective_backprop.lab.meter import Meter


class Follows(StrEnum):
    """What decides how far a run has come in its learning-rate schedule.

    A schedule ends where traditional training of the run's length ends; a budget of cost is as
    long as the number of traditional epochs that it pays for. An arm that gets there early goes on
    at the schedule's last learning rate.

    `RUN` follows the share of the run that is done, so that every arm goes through the whole
    schedule: candidate batches where epochs end the run, what is spent where a budget does.

    `EPOCHS` moves between epochs only: each trains at the learning rate of its middle, since at
    that of its beginning or end a schedule that begins or ends at 0 would waste an epoch.

    `CANDIDATES` counts the examples that came up for training, trained on or not.

    `UPDATES` counts the optimiser's steps. An arm that takes fewer of them per epoch than
    traditional training does ends before its schedule does, at a learning rate that has not come
    down; many published comparisons are run in this way.

    `SECONDS` counts seconds of training against a budget of seconds.
    """

    RUN = "run"
    EPOCHS = "epochs"
    CANDIDATES = "candidates"
    UPDATES = "updates"
    SECONDS = "seconds"


@dataclass(frozen=True)
class Course:
    """Traditional training of a run's length, which the run's own counts are held against.

    Attributes:
        length: of the run.
        examples: in the training set.
        batch_size: rows of a training batch.
    """

    length: Length
    examples: int
    batch_size: int

    @property
    def epochs(self) -> float:
        """Traditional epochs; means nothing for a budget of seconds."""
        return self.length.value

    @property
    def candidates(self) -> float:
        """Examples that come up."""
        return self.epochs * self.examples

    @property
    def updates(self) -> float:
        """Steps of the optimiser, the last of an epoch on what is left for it."""
        return self.epochs * math.ceil(self.examples / self.batch_size)


@dataclass(frozen=True)
class Standing:
    """What a run has counted as it takes an update, that update's own batch included.

    Attributes:
        progress: share of the run that is done, 0 to 1.
        stats: of the run's loader.
        meter: of the run.
    """

    progress: float
    stats: sb.Stats
    meter: Meter


def check_pace(follows: Follows, length: Length) -> None:
    """Refuse a learning rate that follows what a run of this length does not know the end of.

    Raises:
        ConfigurationError: if `follows` is `SECONDS` and the length is not in seconds, or counts
            epochs, candidates or updates and the length is in seconds.
    """
    if length.unit not in _RULES[follows].units:
        wanted = (
            "needs a budget in seconds, such as --budget 60s"
            if follows is Follows.SECONDS
            else "needs a length in epochs, or a budget in cost, such as --budget 10"
        )
        raise sb.ConfigurationError(
            f"--lr-follows {follows} {wanted}, but the run's length is {length.words}. "
            f"--lr-follows {Follows.RUN} goes with every length."
        )


def schedule_share(follows: Follows, course: Course, standing: Standing) -> float:
    """Return the share of its learning-rate schedule that a run has come to.

    Returns:
        0 to 1, and above 1 where the run goes on after its schedule, whose last rate then holds.
    """
    return _RULES[follows].share(course, standing)


def followed(follows: Follows, length: Length) -> str:
    """Return what the learning rate follows, in the words of a record.

    Two choices that come to the same for this length have the same words.
    """
    return _RULES[follows].words or _THE_RUN[length.unit]


def remark(words: str) -> str | None:
    """Return what a reader has to know of a comparison whose learning rate follows `words`.

    Returns:
        A sentence; None where every arm goes through its whole schedule.
    """
    if words not in {rule.words for rule in _RULES.values()}:
        return None
    return (
        f"The learning rate follows the {words}: an arm that makes fewer of them ends before its "
        "schedule does, and one that makes more goes on at its last learning rate."
    )


def _of_the_run(course: Course, standing: Standing) -> float:
    return standing.progress


def _of_epochs(course: Course, standing: Standing) -> float:
    begins = standing.stats.epoch
    ends = min(begins + 1, course.epochs)  # a budget may end within an epoch
    return (begins + ends) / 2 / course.epochs


def _of_candidates(course: Course, standing: Standing) -> float:
    return standing.stats.candidates / course.candidates


def _of_updates(course: Course, standing: Standing) -> float:
    return standing.meter.updates / course.updates


def _of_seconds(course: Course, standing: Standing) -> float:
    return standing.meter.seconds / course.length.value


@dataclass(frozen=True)
class _Rule:
    share: Callable[[Course, Standing], float]
    units: frozenset[str]  # of the lengths whose end it can know
    words: str | None = None  # None where it comes to the run's own share


_COUNTED = frozenset({"epochs", "cost"})
_THE_RUN = {"epochs": "candidates seen", "cost": "cost spent", "seconds": "seconds spent"}
_RULES: Mapping[Follows, _Rule] = {
    Follows.RUN: _Rule(_of_the_run, frozenset(_THE_RUN)),
    Follows.EPOCHS: _Rule(_of_epochs, _COUNTED, "share of traditional epochs"),
    Follows.CANDIDATES: _Rule(_of_candidates, _COUNTED, "share of traditional candidates"),
    Follows.UPDATES: _Rule(_of_updates, _COUNTED, "share of traditional updates"),
    Follows.SECONDS: _Rule(_of_seconds, frozenset({"seconds"})),
}
