"""Records as one table: a row for each evaluation of each run, for pandas to ask.

    import selective_backprop_lab as lab

    evaluations = lab.frame("records/demo")
    evaluations.groupby(["length", "arm", "seed"]).error.last()

What a page, a table, a figure or a verdict says is a question to this table; see `analysis`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

import selective_backprop as sb
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.datasets import TEXTS, base_name
from selective_backprop_lab.records.schema import Point, Run, read_runs

# What is said of a run stands in each of its rows.
OF_A_RUN: Mapping[str, str] = {
    "run": "name of the record; with `folder` it names one run",
    "folder": "folder of the record",
    "finished": "whether the run came to its end",
    "arm": "name of the strategy",
    "seed": "of the run",
    "length": "how long the run was meant to be, in `unit`",
    "unit": "of `length`: epochs, cost (passes of traditional training) or seconds",
    "data": "name of the data set; of a mapping that describes one, its name",
    "model": "name of the net; of a mapping that describes one, its name",
    "learning_rate": "highest of the run",
    "device": "cpu or cuda",
    "code": "version of the code that ran",
    "model_file": "fingerprint of the file of a model of the user's own; None of another",
    "data_file": "fingerprint of the file of data of the user's own; None of others",
    "machine": "GPU, processor, its instructions, cores, threads and memory, in words",
    "command": "what was typed",
    "started": "ISO 8601, UTC",
    "config": "all that was in force, flat: `recipe.batch_size` and the like",
    "versions": "of Python and of libraries",
    "meters": "what was counted over the whole run; empty for an unfinished one",
    "observations": "what probes saw",
    "evaluations": "how many there are",
}
OF_AN_EVALUATION: Mapping[str, str] = {
    "evaluation": "its number, from 0; -1 in the one row of a run that has none",
    "error": "test error in percent; of text, bits per byte",
    "progress": "share of the run's own length, 0 to 1",
    "epoch": "passes over the data so far",
    "cost": "passes of traditional training so far: scoring 1, training 3, per example",
    "seconds": "wall seconds so far, evaluations left out",
    "cpu_seconds": "CPU seconds of the process so far, evaluations left out",
    "updates": "optimiser steps so far",
    "candidates": "examples that came up so far",
    "loaded": "examples loaded so far",
    "scored": "forward passes for scoring so far, in examples",
    "trained": "forward and backward passes for training so far, in examples",
    "forwards": "forward passes so far, for scoring and for training, in examples",
    "test_error": "percent",
    "test_loss": "mean cross-entropy on the test set, in nats",
    "train_loss": "mean over the training batches since the evaluation before",
    "rate": "share trained on of the candidates since the evaluation before",
    "phases": "seconds so far by phase: load, score, select, forward, backward, step, other",
    "overhead": "wall seconds of setting up and of evaluations so far; NaN where not metered",
    "class_errors": "error of each class in percent, in order of the labels; None if not kept",
    "ranking": "area under the curve, 0 to 1, of two classes; NaN otherwise",
}
COLUMNS: Mapping[str, str] = {**OF_A_RUN, **OF_AN_EVALUATION}


def frame(*places: str | Path) -> pd.DataFrame:
    """Return all evaluations of all runs of some folders of records, described by `COLUMNS`.

    Raises:
        RecordError: if a folder is missing, or one of its records cannot be read.
    """
    return frame_of(run for place in places for run in read_runs(place))


def frame_of(runs: Iterable[Run]) -> pd.DataFrame:
    """Return the evaluations of runs, in the order of the runs."""
    rows = (row for run in runs for row in _rows(run))
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    return found.astype({"overhead": float, "ranking": float})


def runs_of(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run: its first evaluation, or the row of a run without any."""
    return evaluations[evaluations.evaluation <= 0]


def each_run(evaluations: pd.DataFrame) -> Iterator[Any]:
    """Yield each run as an object that has the columns as attributes."""
    yield from runs_of(evaluations).itertuples()


def length_of(run: Run) -> Budget:
    """Return how long a run was meant to be.

    Raises:
        RecordError: if its configuration does not say.
    """
    config = run.header.config
    budgeted = config.get("budget") is not None
    unit = str(config.get("budget_unit") or "cost") if budgeted else "epochs"
    value = config["budget"] if budgeted else config.get("epochs", 0)
    if not isinstance(value, int | float) or unit not in {"epochs", "cost", "seconds"}:
        raise sb.RecordError(
            f"{run.name}: a length of {value!r} {unit!r}; expected a number of epochs, or a budget "
            "with budget_unit 'cost' or 'seconds'."
        )
    return Budget(unit, float(value))


def is_text(data: Any) -> bool:
    """Whether data of a name are text, of which each byte is predicted from the bytes before."""
    return base_name(str(data)) in TEXTS


def machine_of(hardware: Mapping[str, Any]) -> str:
    """Describe a machine as a header holds it."""

    def counted(noun: str) -> str | None:
        number = hardware.get(f"{noun}s")
        return f"{number} {noun}{'' if number == 1 else 's'}" if number else None

    memory = f"{hardware['memory_gib']:.0f} GiB" if hardware.get("memory_gib") else None
    names = [hardware.get(name) for name in ("gpu", "cpu", "capability")]
    parts = [*names, counted("core"), counted("thread"), memory]
    return ", ".join(str(part) for part in parts if part) or "hardware unknown"


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without nesting: `{"a": {"b": 1}}` becomes `{"a.b": 1}`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": entry for inner, entry in flat(value).items()}
        else:
            found[key] = value
    return found


def _rows(run: Run) -> Iterator[tuple[Any, ...]]:
    header, config, length = run.header, flat(run.header.config), length_of(run)
    # Readers look at these mappings, and nobody changes them: all rows of a run share them.
    own = (
        run.name,
        "" if run.path is None else str(run.path.parent),
        run.finished,
        header.arm,
        header.seed,
        length.value,
        length.unit,
        *(_name(header.config.get(key)) for key in ("data", "model")),
        config.get("recipe.learning_rate", math.nan),
        header.device,
        header.code_version,
        header.model_file,
        header.data_file,
        machine_of(header.hardware),
        header.command,
        header.started,
        config,
        header.versions,
        run.meters,
        run.observations,
        len(run.points),
    )
    bits = is_text(run.header.config.get("data", ""))
    for number, point in enumerate(run.points):
        error = point.test_loss / math.log(2.0) if bits else point.test_error
        yield (*own, number, error, *(getattr(point, name) for name in _POINT))
    if not run.points:
        yield (*own, -1, *[math.nan] * (1 + len(_POINT)))


def _name(described: Any) -> str:
    """Return how data or a model is called: its name, where it is described by a mapping."""
    if isinstance(described, Mapping):
        return str(described.get("name", described))
    return "–" if described is None else str(described)


_POINT = [name for name in OF_AN_EVALUATION if name not in {"evaluation", "error"}]
assert {*_POINT} - {"forwards"} == {field.name for field in fields(Point)}
