"""Where runs are recorded, and what their data are read from."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import selective_backprop as sb
from selective_backprop.lab.data import datasets
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.data.noise import UniformFlip
from selective_backprop.lab.nets.fingerprint import fingerprint, refuse_changed
from selective_backprop.lab.records.pack import PACK
from selective_backprop.lab.records.schema import Header, Run, is_recorded, pack_finished, read_run
from selective_backprop.lab.training.run_config import RunConfig


@dataclass(frozen=True)
class RunStore:
    """Where runs are recorded, and what their data are read from.

    Attributes:
        folder: of the records.
        root: of the data sets' files; None for those that need none.
        command: what was typed, for the records.
        every: seconds of training between two checkpoints; None for the default.
    """

    folder: Path
    root: Path | None = None
    command: str = ""
    every: float | None = None

    def data(self, plan: RunConfig) -> ImageData:
        """Return what a plan trains on, its labels flipped as it says."""
        return UniformFlip(plan.noise)(load_data(plan.recipe.data, self.root, plan.limit))

    def path(self, plan: RunConfig) -> Path:
        """Return the file of a plan's record."""
        return self.folder / plan.record_name

    def header(self, plan: RunConfig) -> Header:
        """Return what the record of a run that starts now begins with."""
        return plan.header(self.command)

    def read(self, plan: RunConfig) -> Run:
        """Return a plan's record, finished or not.

        Raises:
            RecordError: if it is missing or damaged.
        """
        return read_run(self.path(plan))

    def has_finished(self, plan: RunConfig) -> bool:
        """Return whether a plan's record is finished, and holds what its probes saw.

        Raises:
            RecordError: if there is one that was damaged, or is of a model whose file has changed.
        """
        path = self.path(plan)
        try:
            run = read_run(path) if is_recorded(path) else None
        except sb.RecordError as error:
            raise sb.RecordError(f"{error} To run it anew, move that file away.") from error
        if run is None or not run.finished:
            return False
        seen = {observation.probe for observation in run.observations}
        if any(probe.words not in seen for probe in plan.probes):
            return False
        model = plan.recipe.model
        if run.header.model_file is not None:
            refuse_changed(path, model, run.header.model_file, fingerprint(model))
        return True

    def keep_packed(self) -> None:
        """Move what is finished into the folder's pack, if it has one."""
        if (self.folder / PACK).exists():
            pack_finished(self.folder)


@lru_cache(maxsize=2)
def load_data(name: str, root: Path | None, limit: int | None) -> ImageData:
    """Return a data set, remembering the last two."""
    return datasets.load(name, root=root, limit=limit)
