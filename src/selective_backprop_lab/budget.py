"""The planned length of a run."""

from dataclasses import dataclass


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
    def option(self) -> str:
        """The length as `--budget` takes it."""
        return self.short.replace(" ", "")

    @property
    def noun(self) -> str:
        """The unit of the length as a noun: `passes`, or `pass` for 1."""
        one, several = _NOUNS[self.unit]
        return one if self.value == 1 else several

    def __str__(self) -> str:
        """Return the length as in a sentence: `8 passes`."""
        return f"{self.value:g} {self.noun}"


_NOUNS = {
    "epochs": ("epoch", "epochs"),
    "cost": ("pass", "passes"),
    "seconds": ("second", "seconds"),
}
