"""The planned length of a run."""

from dataclasses import dataclass

_NOUNS = {
    "epochs": ("epoch", "epochs"),
    "cost": ("pass", "passes"),
    "seconds": ("second", "seconds"),
}
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
        return _NOUNS[self.unit][int(self.value != 1)]

    @property
    def followed(self) -> str:
        """What schedules follow in a run of this length, in the words of a record."""
        return _FOLLOWED[self.unit]

    def __str__(self) -> str:
        return f"{self.value:g} {self.noun}"
