"""What a run's learning-rate schedule is counted in: the run itself, or the candidates seen."""

from enum import StrEnum

from selective_backprop_lab.budget import Budget


class ScheduleBasis(StrEnum):
    """What a learning-rate schedule is counted in."""

    # The share of the run that is done, so that every strategy goes through the whole schedule:
    # candidate batches where epochs end the run, what is spent where a budget does.
    RUN = "run"
    # The examples that came up for training, trained on or not, as many published comparisons
    # count. The schedule ends where traditional training of the run's length does, or, where the
    # clock ends the run, after the recipe's epochs. Beyond its end, its last learning rate stays.
    CANDIDATES = "candidates"


_THE_RUN = {"epochs": "candidates seen", "cost": "cost spent", "seconds": "seconds spent"}


def basis_words(basis: ScheduleBasis, length: Budget, epochs: int) -> str:
    """Return what the schedule is counted in, in the words of a record."""
    if basis is ScheduleBasis.RUN:
        return _THE_RUN[length.unit]
    of_epochs = f" of {epochs} epochs" if length.unit == "seconds" else ""
    return f"share of traditional {basis}{of_epochs}"


def schedule_note(words: str) -> str | None:
    """Return what a reader has to know of a schedule that `words` describe; None if nothing."""
    if not words.startswith("share of traditional "):
        return None
    return (
        f"The learning rate follows the {words}: an arm that makes fewer of them ends before its "
        "schedule does, and one that makes more goes on at its last learning rate."
    )
