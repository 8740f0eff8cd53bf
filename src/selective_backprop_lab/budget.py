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

    def __str__(self) -> str:
        """Return the length as it stands in a sentence."""
        if self.unit == "cost":
            return f"a budget of {self.value:g} traditional epochs"
        if self.unit == "seconds":
            return f"a budget of {self.value:g} seconds"
        return f"{self.value:g} epoch{'' if self.value == 1 else 's'}"
