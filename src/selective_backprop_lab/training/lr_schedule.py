"""What a run's learning-rate schedule follows: the run's own progress, or the candidates seen."""

from enum import StrEnum

from selective_backprop_lab.budget import Budget


class ScheduleBasis(StrEnum):
    """What a learning-rate schedule follows."""

    # The fraction of the run that is done, so all strategies go through the whole schedule. It is
    # counted in candidate batches if the run's length is in epochs, else in the budget spent.
    RUN = "run"
    # The examples that came up for training, trained on or not, as in many published comparisons.
    # The schedule ends where traditional training of the run's length ends or, with a budget in
    # seconds, after the recipe's epochs. After its end, the last learning rate stays.
    CANDIDATES = "candidates"


_THE_RUN = {"epochs": "candidates seen", "cost": "cost spent", "seconds": "seconds spent"}


def basis_words(basis: ScheduleBasis, length: Budget, epochs: int) -> str:
    """Return what the schedule follows, in the words of a record."""
    if basis is ScheduleBasis.RUN:
        return _THE_RUN[length.unit]
    of_epochs = f" of {epochs} epochs" if length.unit == "seconds" else ""
    return f"share of traditional {basis}{of_epochs}"


def schedule_note(words: str) -> str | None:
    """Return what a reader must know about a schedule, described by `words`; None if nothing."""
    if not words.startswith("share of traditional "):
        return None
    return (
        f"The learning rate follows the {words}: an arm that makes fewer of them ends before its "
        "schedule, and an arm that makes more continues at the last learning rate."
    )
