"""Where runs are recorded, and where their data are read."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData, load
from selective_backprop_lab.records.files import replacing, told
from selective_backprop_lab.records.schema import Run, is_recorded, read_run
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import RunConfig

load_data = lru_cache(maxsize=2)(load)


@dataclass(frozen=True)
class RunStore:
    """Where runs are recorded, and where their data are read."""

    folder: Path  # folder of the records
    root: Path | None = None  # folder of the data sets' files; None if there are none
    command: str = ""  # the typed command, for the records
    every: float | None = None  # seconds of training between two checkpoints; None for the default

    def data(self, config: RunConfig) -> LabData:
        """Return the data that a run trains on, changed as its composition says."""
        composition, redraw = config.drawn
        options = {"root": self.root, "limit": config.limit, "redraw": redraw}
        return composition(load_data(config.recipe.data, hold_out=config.held_out, **options))

    def weights(self, config: RunConfig) -> dict[str, Tensor] | None:
        """Return the weights that a run fine-tunes; the net is trained once for a folder."""
        plan = config.pretraining
        if plan is None:
            return None
        path = self.path(plan).with_suffix(".weights")
        if not path.is_file():
            before, after = self.data(plan), self.data(config)
            if before.train_inputs.shape[1:] != after.train_inputs.shape[1:]:
                raise sb.ConfigurationError(
                    f"examples of {before.name} have the shape {_shape(before)}, but those of "
                    f"{after.name} {_shape(after)}, so no net can be trained on both"
                )
            run = TrainingRun(plan, before)
            while not run.finished:
                run.advance()
            with told(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as file:
                    torch.save(run.model.state_dict(), file)
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged bytes may make the reader raise anything
            raise sb.RecordError(
                f"{path}: cannot be read as weights ({error}). Move that file away to train them "
                "again."
            ) from error

    def path(self, config: RunConfig) -> Path:
        """Return the path of a run's record."""
        return self.folder / config.record_name

    def read(self, config: RunConfig) -> Run:
        """Return a run's record, finished or not."""
        return read_run(self.path(config))

    def has_finished(self, config: RunConfig) -> bool:
        """Return whether a run's record is finished, and holds what its probes saw."""
        path = self.path(config)
        try:
            run = read_run(path) if is_recorded(path) else None
        except sb.RecordError as error:
            raise sb.RecordError(f"{error} To run it again, move that file away.") from error
        if run is None or not run.finished:
            return False
        seen = {observation.probe for observation in run.observations}
        return all(probe.record_name in seen for probe in config.probes)


def _shape(data: LabData) -> str:
    return " x ".join(map(str, data.train_inputs.shape[1:]))
