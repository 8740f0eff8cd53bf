"""What plain training shows in its first passes, held against the gain of `auto` that came.

The numbers were fixed before any of them was compared with a gain. Each is read once for a
workload, from the losses that training computes anyway as it meets each example.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from reproductions.auto.protocol import STAGES, TUNING_SEEDS, Workload
from reproductions.auto.results import Judged, Results, judged, read_results
from reproductions.training import Order
from selective_backprop_lab.analysis.queries import BASELINE
from selective_backprop_lab.analysis.tables import Table
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.records.provenance import write_record
from selective_backprop_lab.runner.grid import RunStore
from selective_backprop_lab.shapes import Float32
from selective_backprop_lab.training.run import TrainingRun

READ = tuple(name for name in STAGES if name != "language")  # a row of text has many labels
FILE = "recovery.json"
PASSES, SHORTEST = 3, 4  # that are trained, and of the schedule at least
SEEDS = TUNING_SEEDS[:2]
DRAWS = 1000  # of data sets, for an interval
HALF = math.log(2.0)  # the loss where the label has a probability of one half
Losses = Float32[np.ndarray, "pass example"]  # as training met each example


def _share(rows: np.ndarray) -> float:
    return float(rows.mean()) if len(rows) else math.nan


def _recovery(losses: Losses, first: int = 0) -> float:
    return _share(losses[first + 1][losses[first] > HALF] <= HALF)


def _lost(losses: Losses) -> float:
    one, two = losses[:2, losses[0] > HALF].sum(1)
    return float(1 - two / one) if one else math.nan


def _hardest(losses: Losses) -> float:
    hardest = losses[0] >= np.quantile(losses[0], 0.9)
    return _share(losses[1][hardest] <= HALF)


NUMBERS: Mapping[str, tuple[str, Callable[[Losses], float]]] = {
    "recovery": (
        "of the examples below ½ in the first pass, at ½ or more in the second",
        _recovery,
    ),
    "later recovery": ("the same, from the second pass to the third", lambda it: _recovery(it, 1)),
    "learned": (
        "of all examples, at ½ or more in the second pass",
        lambda it: _share(it[1] <= HALF),
    ),
    "learned × recovery": (
        "recovery, times the share at ½ or more in the first pass",
        lambda it: _share(it[0] <= HALF) * _recovery(it),
    ),
    "loss that goes": ("of the loss of those below ½ in the first pass, gone in the second", _lost),
    "recovery of the hardest": (
        "of the tenth with the highest losses in the first pass, at ½ or more in the second",
        _hardest,
    ),
}
"""The numbers by name: what each is a share of, by p(true) as training meets it; and the number."""


def measure(workload: Workload, store: RunStore, device: str) -> dict[str, float]:
    """Return the numbers of a workload, averaged over seeds, at the middle learning rate."""
    passes = max(SHORTEST, math.ceil(workload.compared[0]))
    cell = BASELINE, Budget("epochs", float(passes))
    found = []
    for seed in SEEDS:
        plan = workload.plan(cell, workload.recipe.learning_rate, seed, device)
        plan = replace(plan, evaluations=passes)
        weights = store.weights(plan)
        run = TrainingRun(plan, store.data(plan), weights=weights, log_examples=True)
        losses, met = [], np.array(True)
        for number in range(1, PASSES + 1):
            run.advance()
            history = run.history()
            assert history is not None  # it is logged
            losses.append(history.loss_last.copy())
            # The last, partial batch of a pass comes with the next.
            met = met & (history.selected == number)
        found.append([number(np.stack(losses)[:, met]) for _, number in NUMBERS.values()])
    return dict(zip(NUMBERS, np.mean(found, 0).round(4).tolist(), strict=True))


def source(workload: Workload) -> str:
    """Return the name of the data that a workload is made of, which others share."""
    return re.sub(r":.*|-three|-animals|-coarse", "", workload.recipe.data)


def key(stage: str, workload: Workload) -> str:
    """Return the name of a workload in the record."""
    return f"{stage}/{workload.name}"


def read_jobs(
    folder: Path, read: Callable[[str], list[Results]]
) -> list[tuple[Judged, Mapping[str, float]]]:
    """Return each job that `auto` is judged in, with the numbers of its workload on record."""
    known = json.loads((folder / FILE).read_text(encoding="utf-8"))["workloads"]
    found = [
        (job, known.get(key(stage, job.results.workload)))
        for stage in READ
        for job in judged(each for each in read(stage) if len(each.runs))
    ]
    return [(job, numbers) for job, numbers in found if numbers]


def related(jobs: Sequence[tuple[Judged, Mapping[str, float]]]) -> Table:
    """Return how each number ranks the jobs by the gain of `auto`, relative to the error."""
    rows, draws = list[tuple[str, ...]](), np.random.default_rng(0)
    gains = np.array([-job.results.change(job.length).mean for job, _ in jobs])
    sources = np.array([source(job.results.workload) for job, _ in jobs])
    for name, (what, _) in NUMBERS.items():
        values = np.array([numbers[name] for _, numbers in jobs], dtype=float)
        there = np.isfinite(values) & np.isfinite(gains)
        own = [np.flatnonzero(there & (sources == each)) for each in np.unique(sources[there])]

        def ranked(rows: np.ndarray, values: np.ndarray = values) -> float:
            return pd.Series(values[rows]).rank().corr(pd.Series(gains[rows]).rank())

        drawn = [own[i] for i in draws.integers(len(own), size=DRAWS * len(own))]
        some = [np.concatenate(drawn[at::DRAWS]) for at in range(DRAWS)]
        low, high = np.nanquantile([*map(ranked, some)], (0.025, 0.975))
        without = {
            each: ranked(np.flatnonzero(there & (sources != each))) for each in np.unique(sources)
        }
        least = min(without, key=lambda each: abs(without[each]))
        cells = f"{ranked(np.flatnonzero(there)):+.2f}", f"{low:+.2f} to {high:+.2f}"
        rows.append((name, what, *cells, f"{without[least]:+.2f} ({least})"))
    head = ("number", "the share", "rank correlation", "95 %", "nearest 0 without one data set")
    title = f"{len(jobs)} jobs of {len({*sources})} data sets: what goes with the gain of auto"
    return Table(head, [[cell.replace("-", "−") for cell in row] for row in rows], title)


def run_recovery(console: Console, order: Order) -> None:
    """Measure the workloads that are not on record, and print how the numbers rank the jobs."""
    path = order.out / FILE
    known: dict[str, Any] = (
        json.loads(path.read_text("utf-8"))["workloads"] if path.exists() else {}
    )
    store = RunStore(order.out / "pretrained", order.root)
    every = [(key(stage, each), each) for stage in READ for each in STAGES[stage].workloads]
    for name, workload in every if order.trains else ():
        if name not in known:
            known[name] = measure(workload, store, order.device)
            write_record(path, order.command, {"seeds": SEEDS, "workloads": known})
            console.print(name, known[name])
    jobs = read_jobs(order.out, lambda stage: read_results(STAGES[stage], order.out / stage))
    console.print(related(jobs))
