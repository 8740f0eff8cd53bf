"""How long a run is meant to be."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Budget:
    """How long a run is meant to be: by epochs, or by a budget of cost or of seconds."""

    unit: str  # "epochs", "cost" (in passes of traditional training) or "seconds"
    value: float

    @property
    def short(self) -> str:
        """The length as it stands behind a strategy's name."""
        return f"{self.value:g} s" if self.unit == "seconds" else f"{self.value:g}"

    @property
    def option(self) -> str:
        """A budget as `--budget` takes it."""
        return self.short.replace(" ", "")

    @property
    def noun(self) -> str:
        """What the length is a number of: `passes`, or `pass` of 1."""
        one, several = _NOUNS[self.unit]
        return one if self.value == 1 else several

    def __str__(self) -> str:
        """Return the length as it stands in a sentence: `8 passes`."""
        return f"{self.value:g} {self.noun}"


_NOUNS = {
    "epochs": ("epoch", "epochs"),
    "cost": ("pass", "passes"),
    "seconds": ("second", "seconds"),
}
