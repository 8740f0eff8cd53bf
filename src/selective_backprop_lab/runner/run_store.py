"""Where runs are recorded, and what their data are read from."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData, data_name, prepared, read
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.schema import Run, is_recorded, read_run
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import RunConfig


@dataclass(frozen=True)
class RunStore:
    """Where runs are recorded, and what their data are read from."""

    folder: Path  # of the records
    root: Path | None = None  # of the data sets' files; None if they need none
    command: str = ""  # what was typed, for the records
    every: float | None = None  # seconds of training between two checkpoints; None for the default

    def data(self, config: RunConfig) -> LabData:
        """Return what a run trains on, composed as it says."""
        composition, redraw = config.drawn
        name = config.recipe.data
        return composition(load_data(name, self.root, config.limit, redraw, config.held_out))

    def weights(self, config: RunConfig) -> dict[str, Tensor] | None:
        """Return the weights of the net that a run goes on from; None where it begins anew.

        That net is trained when it is first asked for, once for all runs of the folder, and kept
        beside the records.

        Raises:
            ConfigurationError: if its data have other images than the run's.
            RecordError: if they are kept and cannot be read.
        """
        plan = config.pretraining
        if plan is None:
            return None
        path = self.path(plan).with_suffix(".weights")
        if not path.exists():
            before, after = self.data(plan), self.data(config)
            if before.train_inputs.shape[1:] != after.train_inputs.shape[1:]:
                raise sb.ConfigurationError(
                    f"examples of {before.name} are {_shape(before)} and examples of {after.name} "
                    f"{_shape(after)}, so no net can go from the one to the other"
                )
            run = TrainingRun(plan, before)
            while not run.finished:
                run.advance()
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                torch.save(run.model.state_dict(), file)
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged bytes can make the reader raise anything
            raise sb.RecordError(
                f"{path}: cannot be read as weights ({error}). Move that file away to train them "
                "anew."
            ) from error

    def path(self, config: RunConfig) -> Path:
        """Return the file of a run's record."""
        return self.folder / config.record_name

    def read(self, config: RunConfig) -> Run:
        """Return a run's record, finished or not.

        Raises:
            RecordError: if it is missing or damaged.
        """
        return read_run(self.path(config))

    def has_finished(self, config: RunConfig) -> bool:
        """Return whether a run's record is finished, and holds what its probes saw.

        Raises:
            RecordError: if there is one that was damaged.
        """
        path = self.path(config)
        try:
            run = read_run(path) if is_recorded(path) else None
        except sb.RecordError as error:
            raise sb.RecordError(f"{error} To run it anew, move that file away.") from error
        if run is None or not run.finished:
            return False
        seen = {observation.probe for observation in run.observations}
        return all(probe.record_name in seen for probe in config.probes)


def _shape(data: LabData) -> str:
    return " x ".join(map(str, data.train_inputs.shape[1:]))


@lru_cache(maxsize=2)
def load_data(
    name: str,
    root: Path | None,
    limit: int | None,
    redraw: int | None = None,
    hold_out: bool = False,
) -> LabData:
    """Return what `datasets.load` does, remembering the last two, and the files last read."""
    name = data_name(name)
    return prepared(name, _read(name, root), limit=limit, redraw=redraw, hold_out=hold_out)


_read = lru_cache(maxsize=1)(read)
