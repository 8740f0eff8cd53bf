"""What a run's learning rate follows: the run itself, or a count that published schedules go by."""

from enum import StrEnum

import selective_backprop as sb
from selective_backprop_lab.budget import Budget


class ScheduleBasis(StrEnum):
    """What a learning-rate schedule is counted in.

    A schedule ends where traditional training of the run's length ends; a budget of cost is as
    long as the number of traditional epochs that it pays for. A run that gets there early goes on
    at the schedule's last learning rate.
    """

    # The share of the run that is done, so that every strategy goes through the whole schedule:
    # candidate batches where epochs end the run, what is spent where a budget does.
    RUN = "run"
    # Between epochs only: each trains at the learning rate of its middle, since at that of its
    # beginning or end a schedule that begins or ends at 0 would waste an epoch.
    EPOCHS = "epochs"
    # The examples that came up for training, trained on or not. Where a run ends by the clock, the
    # schedule is as long as the recipe's epochs, and the run may end before it or after.
    CANDIDATES = "candidates"
    # The optimiser's steps. A strategy that takes fewer of them per epoch than traditional training
    # ends at a learning rate that has not come down; many published comparisons are run so.
    UPDATES = "updates"
    SECONDS = "seconds"  # of training, against a budget of seconds


_COUNTS = (ScheduleBasis.EPOCHS, ScheduleBasis.CANDIDATES, ScheduleBasis.UPDATES)
_THE_RUN = {"epochs": "candidates seen", "cost": "cost spent", "seconds": "seconds spent"}


def check_basis(follows: ScheduleBasis, length: Budget) -> None:
    """Refuse a learning rate that follows what a run of this length does not know the end of.

    Raises:
        ConfigurationError: if `follows` is `SECONDS` and the length is not in seconds, or counts
            epochs or updates and the length is in seconds.
    """
    in_seconds = length.unit == "seconds"
    if follows is ScheduleBasis.SECONDS and not in_seconds:
        wanted = "a budget in seconds, such as --budget 60s"
    elif follows in (ScheduleBasis.EPOCHS, ScheduleBasis.UPDATES) and in_seconds:
        wanted = "a length in epochs, or a budget in cost, such as --budget 10"
    else:
        return
    raise sb.ConfigurationError(
        f"--lr-follows {follows} needs {wanted}, but the run's length is {length}. "
        f"--lr-follows {ScheduleBasis.RUN} goes with every length."
    )


def basis_words(follows: ScheduleBasis, length: Budget, epochs: int) -> str:
    """Return what the learning rate follows, in the words of a record.

    Two choices that come to the same for this length, and for the recipe's `epochs`, have the same
    words.
    """
    if follows not in _COUNTS:
        return _THE_RUN[length.unit]
    if length.unit == "seconds":
        return f"share of traditional {follows} of {epochs} epochs"
    return f"share of traditional {follows}"


def schedule_note(words: str) -> str | None:
    """Return what a reader has to know where the learning rate follows `words`; None if nothing."""
    if not words.startswith("share of traditional "):
        return None
    return (
        f"The learning rate follows the {words}: an arm that makes fewer of them ends before its "
        "schedule does, and one that makes more goes on at its last learning rate."
    )
