"""What a run's learning rate follows: the run itself, or a count that published schedules go by."""

from enum import StrEnum

import selective_backprop as sb
from selective_backprop.lab.budget import Budget


class Follows(StrEnum):
    """What decides how far a run has come in its learning-rate schedule.

    A schedule ends where traditional training of the run's length ends; a budget of cost is as
    long as the number of traditional epochs that it pays for. An arm that gets there early goes on
    at the schedule's last learning rate.
    """

    # The share of the run that is done, so that every arm goes through the whole schedule:
    # candidate batches where epochs end the run, what is spent where a budget does.
    RUN = "run"
    # Between epochs only: each trains at the learning rate of its middle, since at that of its
    # beginning or end a schedule that begins or ends at 0 would waste an epoch.
    EPOCHS = "epochs"
    # The examples that came up for training, trained on or not.
    CANDIDATES = "candidates"
    # The optimiser's steps. An arm that takes fewer of them per epoch than traditional training
    # ends at a learning rate that has not come down; many published comparisons are run so.
    UPDATES = "updates"
    SECONDS = "seconds"  # of training, against a budget of seconds


# In the words of a record; what follows the run has those of its length.
_WORDS = {
    Follows.EPOCHS: "share of traditional epochs",
    Follows.CANDIDATES: "share of traditional candidates",
    Follows.UPDATES: "share of traditional updates",
}
_THE_RUN = {"epochs": "candidates seen", "cost": "cost spent", "seconds": "seconds spent"}


def check_pace(follows: Follows, length: Budget) -> None:
    """Refuse a learning rate that follows what a run of this length does not know the end of.

    Raises:
        ConfigurationError: if `follows` is `SECONDS` and the length is not in seconds, or counts
            epochs, candidates or updates and the length is in seconds.
    """
    in_seconds = length.unit == "seconds"
    if follows is Follows.RUN or (follows is Follows.SECONDS) == in_seconds:
        return
    wanted = (
        "needs a budget in seconds, such as --budget 60s"
        if follows is Follows.SECONDS
        else "needs a length in epochs, or a budget in cost, such as --budget 10"
    )
    raise sb.ConfigurationError(
        f"--lr-follows {follows} {wanted}, but the run's length is {length.words}. "
        f"--lr-follows {Follows.RUN} goes with every length."
    )


def followed(follows: Follows, length: Budget) -> str:
    """Return what the learning rate follows, in the words of a record.

    Two choices that come to the same for this length have the same words.
    """
    return _WORDS.get(follows, _THE_RUN[length.unit])


def remark(words: str) -> str | None:
    """Return what a reader has to know where the learning rate follows `words`; None if nothing."""
    if words not in _WORDS.values():
        return None
    return (
        f"The learning rate follows the {words}: an arm that makes fewer of them ends before its "
        "schedule does, and one that makes more goes on at its last learning rate."
    )
