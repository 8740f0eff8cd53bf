"""The planned length of a run, and what its learning-rate schedule follows."""

from dataclasses import dataclass
from enum import StrEnum

_ONE = {"epochs": "epoch", "cost": "pass", "seconds": "second"}
_MANY = {"epochs": "epochs", "cost": "passes", "seconds": "seconds"}
_FOLLOWED = {"epochs": "candidates seen", "cost": "cost spent", "seconds": "seconds spent"}


@dataclass(frozen=True, order=True)
class Budget:
    """The planned length of a run: in epochs, in passes of cost, or in seconds."""

    unit: str  # "epochs", "cost" (in passes of traditional training) or "seconds"
    value: float

    @property
    def short(self) -> str:
        """The length as it stands after a strategy's name."""
        return f"{self.value:g} s" if self.unit == "seconds" else f"{self.value:g}"

    @property
    def noun(self) -> str:
        """The unit of the length as a noun: `passes`, or `pass` for 1."""
        return (_ONE if self.value == 1 else _MANY)[self.unit]

    def __str__(self) -> str:
        return f"{self.value:g} {self.noun}"


class ScheduleBasis(StrEnum):
    """What a learning-rate schedule follows."""

    # The fraction of the run that is done, so all strategies go through the whole schedule.
    RUN = "run"
    # The examples that came up, trained on or not, as in many published comparisons. It ends where
    # traditional training of that length ends or, if this is in seconds, the recipe's epochs.
    CANDIDATES = "candidates"


def basis_words(basis: ScheduleBasis, length: Budget, epochs: int) -> str:
    """Return what the schedule follows, in the words of a record."""
    if basis is ScheduleBasis.RUN:
        return _FOLLOWED[length.unit]
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
