"""Where runs are recorded, and what their data are read from."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from selective_backprop.lab.data import datasets
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.data.noise import UniformFlip
from selective_backprop.lab.training.run_config import Plan


@dataclass(frozen=True)
class Place:
    """Where runs are recorded, and what their data are read from.

    Attributes:
        folder: of the records.
        root: of the data sets' files; None for those that need none.
        command: what was typed, for the records.
        every: seconds of training between two checkpoints; None for the default.
    """

    folder: Path
    root: Path | None
    command: str
    every: float | None = None

    def data(self, plan: Plan) -> ImageData:
        """Return what a plan trains on, its labels flipped as it says."""
        return UniformFlip(plan.noise)(load_data(plan.recipe.data, self.root, plan.limit))


@lru_cache(maxsize=2)
def load_data(name: str, root: Path | None, limit: int | None) -> ImageData:
    """Return a data set, remembering the last two."""
    return datasets.load(name, root=root, limit=limit)
