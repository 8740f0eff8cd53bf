"""The one way to the lab's runner: what is on record, what is missing, and how long that takes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median

from rich.console import Console

import selective_backprop as sb
from reproductions.timing import StepTiming, read_step_times
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.folders import make_folder
from selective_backprop_lab.meter import cost_of
from selective_backprop_lab.records.provenance import hardware
from selective_backprop_lab.records.schema import Run
from selective_backprop_lab.runner.grid import run_grid
from selective_backprop_lab.runner.progress import RunProgress, spell
from selective_backprop_lab.runner.run_store import RunStore
from selective_backprop_lab.training.run_config import RunConfig

# Seconds per 1,000 examples of a forward pass and of a training step, on one thread of an AMD
# EPYC, torch 2.13, by net and by whether images are colour, of 32 pixels a side, or grey, of 28.
_COLOUR = {"cifar10", "cifar100", "svhn", "svhn-extra"}
_SPEEDS = {
    ("tiny_cnn", True): (0.017, 0.053),
    ("small_cnn", True): (0.077, 0.220),
    ("resnet9_narrow", True): (0.652, 2.252),
    ("resnet18_narrow", True): (1.2, 4.2),
    ("googlenet_narrow", True): (6.0, 22.0),
    ("tiny_cnn", False): (0.012, 0.040),
    ("small_cnn", False): (0.046, 0.167),
}
_NORMALISING, _LOADING = 0.01, 0.045  # the same of normalising, and of augmenting as well
EXAMPLES = {  # training, test
    "digits": (1437, 360),
    "mnist": (60_000, 10_000),
    "fashion-mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "svhn-extra": (604_388, 26_032),
}
# What they are on what pruning leaves.
_PRUNED = {
    "el2n": "traditional",
    "el2n-random": "random-backprop",
    "diet-sb": "selective-backprop",
}
_SHORTEST = 5.0  # seconds of a run that says something of the pace
_TIMING = 30.0  # seconds that the timing of steps takes, about
Job = RunConfig | StepTiming
"""What is computed once, into a record of its own, and shared by all that need it."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a command that trains many runs was told."""

    seeds: int
    device: str
    threads: int  # of each run
    jobs: int  # runs at a time
    root: Path | None  # of the data sets' files
    out: Path  # folder of the records and figures
    command: str  # what was typed, for the records
    trains: bool = True  # what is missing; otherwise it is left out
    every: float | None = None  # seconds of training between two checkpoints; None for the default


def name_of(plan: RunConfig) -> str:
    """Return data, net, strategy and seed of a run."""
    return f"{plan.recipe.data}, {plan.recipe.model}, {plan.arm}, seed {plan.seed}"


def train_missing(
    console: Console,
    needed: Sequence[Job],
    order: Order,
    folder: Path,
    absent: Mapping[str, str] | None = None,
) -> None:
    """Say what is on record and how long the rest takes, and train that into a folder.

    What needs `absent` data sets is left out. Runs go so many at a time, then timings, one by one.
    """
    make_folder(folder)
    store = RunStore(folder, order.root, order.command, order.every)
    possible = [job for job in needed if data_of(job) not in (absent or {})]
    done = [job for job in possible if is_done(job, folder)]
    waiting = [job for job in possible if job not in done]
    parts = [f"{len(needed)} runs: {len(done)} on record"]
    if len(possible) < len(needed):
        parts.append(f"{len(needed) - len(possible)} left out for want of their data")
    if waiting:
        time = spell(Pace.of(done, folder).left(waiting, order.jobs))
        parts.append(f"{len(waiting)} to do, about {time}")
    console.print(", ".join(parts), soft_wrap=True)
    plans = [job for job in waiting if isinstance(job, RunConfig)]
    if plans:
        with RunProgress(console, plans, weight=work, name=name_of) as progress:
            run_grid(
                plans,
                store,
                watch=progress,
                jobs=order.jobs,
                threads=order.threads,
                interleave=False,
                log_examples=False,
            )
    for job in waiting:
        if isinstance(job, StepTiming):
            job.measure(folder, root=order.root, command=order.command)


def default_jobs(device: str, threads: int) -> int:
    """Return how many runs there is room for at a time."""
    return max(1, hardware()["cores"] // threads) if device == "cpu" else 1


def file_of(job: Job, folder: Path = Path()) -> Path:
    """Return the record of a job, by which it is known."""
    return job.file(folder) if isinstance(job, StepTiming) else RunStore(folder).path(job)


def is_done(job: Job, folder: Path) -> bool:
    """Return whether a job is on record, finished, with what its probes saw.

    Raises:
        RecordError: if there is a record that was damaged.
    """
    if isinstance(job, StepTiming):
        file = job.file(folder)
        return file.exists() and bool(read_step_times(file).phases)
    return RunStore(folder).has_finished(job)


def data_of(job: Job) -> str:
    """Return the name of the data set."""
    return job.recipe.data


def absent_data(needed: Iterable[Job], root: Path | None) -> dict[str, str]:
    """Return why each data set that is not at hand is not, and what to do about it."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(map(data_of, needed)):
        try:
            datasets.load(name, root=root, limit=None)
        except (sb.DataError, sb.ConfigurationError) as error:
            found[name] = str(error)
    return found


def passes(plan: RunConfig) -> tuple[float, float]:
    """Return how many passes over the data a run scores, and how many it trains on."""
    settings, length = plan.settings, plan.length.value
    if plan.length.unit == "seconds":
        length = float(plan.recipe.epochs)  # as far as the clock lets it come
    if plan.arm in _PRUNED:
        scored, trained = passes(replace(plan, arm=_PRUNED[plan.arm]))
        keep, models = settings.keep, settings.models
        return keep * scored + models, keep * trained + models * settings.young * length
    if plan.arm == "traditional":
        return 0.0, length
    random = plan.arm in {"random-backprop", "random-scored"}
    warmup = settings.random_warmup if random else settings.warmup
    selective = length * (1.0 - warmup)
    scored = 0.0 if plan.arm == "random-backprop" else selective
    if plan.arm == "stale-sb":
        scored = float(math.ceil(scored / settings.stale - 1e-6))  # whole epochs are scored
    return scored, length * warmup + settings.rate * selective


def cost(plan: RunConfig) -> float:
    """Return what a run of so many epochs costs, in passes of traditional training."""
    return cost_of(*passes(plan))


def work(plan: RunConfig) -> float:
    """Return a run's size, by which it is compared with others of its kind."""
    examples = plan.limit or EXAMPLES.get(plan.recipe.data, (1000, 0))[0]
    passes = plan.length.value if plan.length.unit == "cost" else cost(plan)
    return (plan.composition.places or examples) * passes


def seconds(plan: RunConfig) -> float | None:
    """Return how long a run takes on one thread of a CPU, with its evaluations and probes.

    Returns:
        None where nothing is known of the net.
    """
    if plan.length.unit == "seconds":
        return plan.length.value
    data = plan.recipe.data
    speed = _SPEEDS.get((plan.recipe.model, data in _COLOUR))
    if speed is None or data not in EXAMPLES or plan.device != "cpu":
        return None
    (forward, step), (examples, tested) = speed, EXAMPLES[data]
    examples = plan.limit or examples
    scored, trained = passes(plan)
    total = examples * (scored * forward + trained * step + max(scored, trained) * _LOADING)
    probed = [probe.passes(examples, tested, plan.evaluations) for probe in plan.probes]
    looked = plan.evaluations * tested + sum(without for without, _ in probed)
    stepped = sum(with_gradient for _, with_gradient in probed)
    return (total + looked * (forward + _NORMALISING) + stepped * step) / 1000


class Pace:
    """Estimates of seconds: from finished runs of the same net and data, else from `seconds`."""

    def __init__(self, finished: Iterable[tuple[RunConfig, Run]]) -> None:
        found: dict[tuple[str, str, str], list[float]] = {}
        for plan, run in finished:
            elapsed = elapsed_of(run)
            if elapsed >= _SHORTEST:
                found.setdefault(_kind(plan), []).append(elapsed / work(plan))
        self._paces = {kind: median(paces) for kind, paces in found.items()}

    @classmethod
    def of(cls, done: Iterable[Job], folder: Path) -> "Pace":
        """Return how fast the runs on record in a folder were."""
        store = RunStore(folder)
        return cls((plan, store.read(plan)) for plan in done if isinstance(plan, RunConfig))

    def seconds(self, plan: RunConfig) -> float | None:
        """Return how long a run takes, or None where nothing is known of its kind."""
        pace = self._paces.get(_kind(plan))
        timed = plan.length.unit == "seconds"
        return seconds(plan) if pace is None or timed else pace * work(plan)

    def left(self, waiting: Iterable[Job], jobs: int) -> float | None:
        """Return the seconds of all, so many at a time; None where that of one is unknown."""
        times = [_TIMING if isinstance(job, StepTiming) else self.seconds(job) for job in waiting]
        known = [time for time in times if time is not None]
        return max([sum(known) / jobs, *known]) if len(known) == len(times) else None


def elapsed_of(run: Run) -> float:
    """Return the seconds that a finished run took, interruptions left out where that is known."""
    end = run.end or {}
    if "elapsed" in end:
        return float(end["elapsed"])
    begun, ended = run.header.started, end.get("ended", run.header.started)
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()


def _kind(plan: RunConfig) -> tuple[str, str, str]:
    return plan.recipe.model, plan.recipe.data, plan.device
