"""The parts of a training step, timed alone: forward, backward and the optimiser."""

import hashlib
import json
import re
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import selective_backprop as sb
from selective_backprop_lab.bench.harness import time_steps
from selective_backprop_lab.bench.rounds import Median, summarise
from selective_backprop_lab.bench.workload import make_workload
from selective_backprop_lab.recipe import Recipe
from selective_backprop_lab.records.fields import read_fields
from selective_backprop_lab.records.provenance import write_record
from selective_backprop_lab.records.schema import utc_now

ROUNDS = 6  # fewer have no 95 % interval
PHASES = ("forward", "backward", "step")
_SCHEMA = 1


@dataclass(frozen=True)
class StepTimes:
    """Times of a step, as recorded."""

    config: Mapping[str, Any]
    phases: Mapping[str, float]  # milliseconds per 1,000 examples
    backward: Median  # of backward to forward passes, with its interval over rounds
    code_version: str
    hardware: Mapping[str, Any]


@dataclass(frozen=True)
class StepTiming:
    """A net whose training steps are to be timed on a data set."""

    recipe: Recipe
    device: str = "cpu"

    def config(self) -> dict[str, Any]:
        """Return the subject of the timing; the record's provenance names the machine."""
        names = ("data", "model", "batch_size")
        return {name: getattr(self.recipe, name) for name in names} | {"device": self.device}

    def file(self, folder: Path) -> Path:
        """Return where the times are recorded."""
        identity = json.dumps(self.config(), sort_keys=True).encode()
        key = hashlib.sha256(identity).hexdigest()[:8]
        model = re.sub(r"[^A-Za-z0-9._-]+", "_", self.recipe.model)[:60]
        return folder / f"step-{model}-{key}.json"

    def measure(self, folder: Path, *, root: Path | None, command: str) -> None:
        """Time steps in rounds, and record the medians."""
        device = torch.device(self.device)
        workload = make_workload(self.recipe, rate=1 / 3, device=device, root=root)
        rounds = time_steps(workload, ROUNDS)
        scale = 1e6 / (rounds[0].steps * self.recipe.batch_size)
        ratios = [each.phases["backward"] / max(each.phases["forward"], 1e-9) for each in rounds]
        spent = {name: statistics.median(each.phases[name] for each in rounds) for name in PHASES}
        found = {
            "kind": "step",
            "schema": _SCHEMA,
            "config": self.config(),
            "written": utc_now(),
            "phases": {name: scale * seconds for name, seconds in spent.items()},
            "backward": asdict(summarise(ratios)),
        }
        write_record(self.file(folder), command, found)


def read_step_times(path: Path) -> StepTimes:
    """Read a record of `StepTiming`; it raises `RecordError` if it is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if (found["kind"], found["schema"]) != ("step", _SCHEMA):
            raise ValueError(f"a {found['kind']} of schema {found['schema']}")
        phases = {name: found["phases"][name] for name in PHASES}
        return read_fields(StepTimes, {**found, "phases": phases})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise sb.RecordError(
            f"{path}: no times of a training step ({error}). Move that file away to time it anew."
        ) from error
