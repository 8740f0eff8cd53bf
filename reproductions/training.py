"""Jobs, which are runs of the lab or timings of steps: those on record, and how to do the rest."""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

import selective_backprop as sb
from reproductions.settings import EXAMPLES
from selective_backprop_lab.bench.harness import time_steps
from selective_backprop_lab.bench.rounds import Median, summarise
from selective_backprop_lab.bench.workload import make_workload
from selective_backprop_lab.data import datasets
from selective_backprop_lab.meter import cost_of
from selective_backprop_lab.recipe import Recipe
from selective_backprop_lab.records.files import make_folder
from selective_backprop_lab.records.lines import read_fields
from selective_backprop_lab.records.provenance import write_record
from selective_backprop_lab.records.schema import is_recorded, utc_now
from selective_backprop_lab.runner.grid import RunStore, run_grid
from selective_backprop_lab.runner.progress import RunProgress, spell
from selective_backprop_lab.training.run_config import RunConfig

ROUNDS = 6  # fewer have no 95 % interval
PHASES = ("forward", "backward", "step")
_SCHEMA = 1
Names = Sequence[str]


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

    @property
    def config(self) -> dict[str, Any]:
        """The subject of the timing; the record's provenance names the machine."""
        names = ("data", "model", "batch_size")
        return {name: getattr(self.recipe, name) for name in names} | {"device": self.device}

    @property
    def record_name(self) -> str:
        key = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:8]
        model = re.sub(r"[^A-Za-z0-9._-]+", "_", self.recipe.model)[:60]
        return f"step-{model}-{key}.json"

    def measure(self, folder: Path, *, root: Path | None, command: str) -> None:
        where = torch.device(self.device)
        rounds = time_steps(make_workload(self.recipe, rate=1 / 3, device=where, root=root), ROUNDS)
        scale = 1e6 / rounds[0].rows
        ratios = [each.phases["backward"] / max(each.phases["forward"], 1e-9) for each in rounds]
        spent = {name: median(each.phases[name] for each in rounds) for name in PHASES}
        found = {"kind": "step", "schema": _SCHEMA, "config": self.config, "written": utc_now()}
        found["phases"] = {name: scale * seconds for name, seconds in spent.items()}
        found["backward"] = asdict(summarise(ratios))
        write_record(folder / self.record_name, command, found)


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


_SHORTEST = 5.0  # seconds of a run that says something of the pace
_EXAMPLES = 10_000  # of data sets whose number of examples is not known here, about
_TIMING = 30.0  # seconds that the timing of steps takes, about
Job = RunConfig | StepTiming  # something computed once, into a record that its name identifies
Kind = tuple[str, str, int | None, int, str]  # net, data, training examples, epochs and device


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of a command that trains many runs."""

    seeds: int
    device: str
    threads: int  # of each run
    jobs: int  # runs at a time
    root: Path | None  # of the data sets' files
    out: Path  # folder of the records and figures
    command: str  # as it was typed, for the records
    trains: bool = True  # the missing runs; otherwise they are left out
    every: float | None = None  # seconds of training between two checkpoints; None for the default


def train_missing(
    console: Console, jobs: Sequence[Job], order: Order, folder: Path, absent: Collection[str] = ()
) -> None:
    """Do the jobs that are not on record, runs first; those with `absent` data are left out."""
    make_folder(folder)
    store = RunStore(folder, order.root, order.command, order.every)
    possible = [job for job in jobs if job.recipe.data not in absent]
    done = [job for job in possible if is_done(job, folder)]
    waiting = [job for job in possible if job not in done]
    said = f"{len(jobs)} runs: {len(done)} on record"
    if len(possible) < len(jobs):
        said += f", {len(jobs) - len(possible)} left out because their data are missing"
    if waiting:
        time = spell(seconds_left(waiting, pace_of(done, folder), order.jobs))
        said += f", {len(waiting)} to do, about {time}"
    console.print(said, soft_wrap=True)
    plans = [job for job in waiting if isinstance(job, RunConfig)]
    if order.jobs > 1:  # a long run that is begun last would be waited for alone
        plans.sort(key=_work_of, reverse=True)
    if plans:
        how: dict[str, Any] = {"jobs": order.jobs, "threads": order.threads}
        name = "{0.recipe.data}, {0.recipe.model}, {0.arm}, seed {0.seed}".format
        with RunProgress(console, plans, weight=_work_of, name=name) as progress:
            run_grid(plans, store, watch=progress, interleave=False, log_examples=False, **how)
    for job in waiting:
        if isinstance(job, StepTiming):
            job.measure(folder, root=order.root, command=order.command)


def _work_of(plan: RunConfig) -> float:  # about, in examples trained on
    options, settings, warm = plan.strategy.options, plan.settings, plan.settings.warmup
    length, examples = plan.length, plan.limit or EXAMPLES.get(plan.recipe.data, _EXAMPLES)
    if length.unit == "cost" or "rate" not in options:
        return examples * (plan.recipe.epochs if length.unit == "seconds" else length.value)
    scored = ("history" in options) / (settings.stale if "stale" in options else 1)
    share = cost_of((1 - warm) * scored, warm + (1 - warm) * settings.rate)
    return examples * share * plan.recipe.epochs


def is_done(job: Job, folder: Path) -> bool:
    """Return whether a job is on record, finished, with the observations of its probes."""
    if isinstance(job, RunConfig):
        return RunStore(folder).has_finished(job)
    file = folder / job.record_name
    return file.exists() and bool(read_step_times(file).phases)


def absent_data(needed: Iterable[Job], root: Path | None) -> dict[str, str]:
    """Return why each missing data set is missing, and what to do about it."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(job.recipe.data for job in needed):
        try:
            datasets.load(name, root=root, limit=None)
        except (sb.DataError, sb.ConfigurationError) as error:
            found[name] = str(error)
    return found


def pace_of(jobs: Iterable[Job], folder: Path) -> dict[Kind, float]:
    """Return the median of the seconds that runs of a folder took, by their kind."""
    store, found = RunStore(folder), {}
    for plan in (job for job in jobs if isinstance(job, RunConfig)):
        if not is_recorded(store.path(plan)):
            continue
        run = store.read(plan)
        elapsed = (run.end or {}).get("elapsed", 0.0)
        if elapsed >= _SHORTEST and run.header.device.startswith(plan.device):
            found.setdefault(_kind(plan), []).append(elapsed)
    return {kind: median(each) for kind, each in found.items()}


def seconds_left(waiting: Iterable[Job], pace: Mapping[Kind, float], jobs: int) -> float | None:
    """Return the seconds of all, so many at a time; None where no run like one has finished."""
    times = [_TIMING if isinstance(job, StepTiming) else pace.get(_kind(job)) for job in waiting]
    known = [time for time in times if time is not None]
    return max([sum(known) / jobs, *known]) if len(known) == len(times) else None


def _kind(plan: RunConfig) -> Kind:
    return plan.recipe.model, plan.recipe.data, plan.limit, plan.recipe.epochs, plan.device
