"""Records as one pandas table, with a row for each evaluation of each run."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import selective_backprop as sb
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.datasets import TEXTS, base_name
from selective_backprop_lab.records.lines import flat
from selective_backprop_lab.records.provenance import machine_of
from selective_backprop_lab.records.schema import Run, read_runs

COLUMNS: Mapping[str, str] = {
    # These have the same value in all rows of a run.
    "run": "name of the record; with `folder` it names one run",
    "folder": "folder of the record",
    "finished": "whether the run came to its end",
    "arm": "name of the strategy",
    "seed": "seed of the run",
    "length": "planned length of the run, in `unit`",
    "unit": "of `length`: epochs, cost (passes of traditional training) or seconds",
    "data": "name of the data set",
    "model": "name of the net",
    "learning_rate": "highest learning rate of the run",
    "device": "cpu or cuda",
    "code": "version of the code that ran",
    "model_file": "fingerprint of the file of a user's own model; None for the lab's",
    "data_file": "fingerprint of the file of a user's own data; None for the lab's",
    "machine": "GPU, processor, its instructions, cores, threads and memory, in words",
    "command": "the command that was typed",
    "started": "start of the run: ISO 8601, UTC",
    "config": "the whole configuration, flat, with keys such as `recipe.batch_size`",
    "versions": "versions of Python and of libraries",
    "meters": "counts over the whole run; empty for an unfinished run",
    "observations": "what probes saw",
    "evaluations": "number of evaluations",
    # These are of one evaluation.
    "evaluation": "number of the evaluation, from 0; -1 in the only row of a run without any",
    "error": "test error in percent; for text, bits per byte",
    "progress": "fraction of the run's own length, 0 to 1",
    "epoch": "passes over the data so far",
    "cost": "passes of traditional training so far; scoring costs a third of training",
    "seconds": "wall seconds so far, evaluations left out; NaN if they compare with no other run's",
    "cpu_seconds": "CPU seconds of the process so far, evaluations left out; NaN likewise",
    "updates": "optimiser steps so far",
    "candidates": "examples that came up so far",
    "loaded": "examples loaded so far",
    "scored": "forward passes for scoring so far, in examples",
    "trained": "forward and backward passes for training so far, in examples",
    "forwards": "forward passes so far, for scoring and for training, in examples",
    "test_error": "test error in percent",
    "test_loss": "mean cross-entropy on the test set, in nats",
    "train_loss": "mean loss of the training batches since the last evaluation",
    "rate": "share of the candidates since the last evaluation that were trained on",
    "phases": "seconds so far by phase: load, score, select, forward, backward, step, other",
    "overhead": "wall seconds of setting up and of evaluations so far; NaN if not recorded",
    "class_errors": "error of each class in percent, in order of the labels; None if not recorded",
    "ranking": "area under the curve, 0 to 1, for two classes; NaN otherwise",
    "rare_precision": "average precision, 0 to 1, of the rarest class with ten test examples",
    "corrected_loss": "test_loss, corrected for how often each class was trained on",
}
AXIS_WORDS = {
    "cost": "cost",
    "seconds": "wall seconds",
    "cpu_seconds": "CPU seconds",
    "trained": "examples trained",
    "scored": "examples scored",
    "forwards": "forward passes, in examples",
    "updates": "updates",
    "candidates": "candidates",
    "epoch": "epochs",
}
AXIS_LABELS = AXIS_WORDS | {
    "cost": "cost, in passes of plain training",
    "seconds": "wall seconds, evaluation left out",
    "cpu_seconds": "CPU seconds, evaluation left out",
    "trained": "backward passes, in examples",
    "candidates": "candidates: examples that came up",
}
_POINT = [*COLUMNS][[*COLUMNS].index("progress") :]


def frame(*places: str | Path) -> pd.DataFrame:
    """Return all evaluations of all runs in some folders, with the columns of `COLUMNS`."""
    return frame_of(run for place in places for run in read_runs(place))


def frame_of(runs: Iterable[Run]) -> pd.DataFrame:
    """Return the evaluations of runs, in the order of the runs."""
    rows = (row for run in runs for row in _rows(run))
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = ("overhead", "ranking", "rare_precision", "corrected_loss")
    return found.astype(dict.fromkeys(numbers, float))


def runs_of(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run: its first evaluation, or its only row if there is none."""
    return evaluations[evaluations.evaluation <= 0]


def each_run(evaluations: pd.DataFrame) -> Iterator[Any]:
    """Yield each run as an object that has the columns as attributes."""
    yield from runs_of(evaluations).itertuples()


def length_of(run: Run) -> Budget:
    """Return the planned length of a run."""
    config = run.header.config
    value, unit = config.get("epochs", 0), "epochs"
    if config.get("budget") is not None:
        value, unit = config["budget"], config.get("budget_unit") or "cost"
    if not isinstance(value, int | float) or unit not in {"epochs", "cost", "seconds"}:
        raise sb.RecordError(
            f"{run.path.name}: a length of {value!r} {unit!r}; expected a number of epochs, or a "
            "budget with budget_unit 'cost' or 'seconds'."
        )
    return Budget(unit, float(value))


def is_text(data: Any) -> bool:
    """Whether a name stands for text, in which each byte is predicted from the bytes before."""
    return base_name(str(data)) in TEXTS


def _rows(run: Run) -> Iterator[tuple[Any, ...]]:
    header, config, length = run.header, flat(run.header.config), length_of(run)
    if header.strategy_file is not None:
        config = {**config, "strategy.file": header.strategy_file}
    # All rows of a run share these mappings, because nobody changes them.
    own = (
        run.path.name,
        str(run.path.parent),
        run.finished,
        header.arm,
        header.seed,
        length.value,
        length.unit,
        *(header.config.get(key, "–") for key in ("data", "model")),
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
    # The seconds of several machines, or of a GPU that others used too, say nothing of a strategy.
    end = run.end or {}
    lost = len({*end.get("machines", ())}) > 1 or end.get("shared_gpu")
    untimed = {"seconds": math.nan, "cpu_seconds": math.nan} if lost else {}
    for number, point in enumerate(run.points):
        error = point.test_loss / math.log(2.0) if bits else point.test_error
        found = (untimed.get(name, getattr(point, name)) for name in _POINT)
        yield (*own, number, error, *found)
    if not run.points:
        yield (*own, -1, *[math.nan] * (1 + len(_POINT)))
