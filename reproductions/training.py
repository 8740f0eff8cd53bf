"""The one way to the lab's runner: what is on record, what is missing, and how to get it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import selective_backprop as sb
from reproductions.costs import Pace, total, work
from reproductions.timing import StepTiming, read_step_times
from selective_backprop.lab.data import datasets
from selective_backprop.lab.data.folders import make_folder
from selective_backprop.lab.records.provenance import hardware
from selective_backprop.lab.records.schema import read_run
from selective_backprop.lab.runner.grid import Watch, run_grid
from selective_backprop.lab.runner.progress import RunProgress, spell
from selective_backprop.lab.runner.run_store import RunStore
from selective_backprop.lab.training.run_config import RunConfig

TIMING = 30.0  # seconds that the timing of steps takes, about
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

    def store(self, folder: Path) -> RunStore:
        """Return where runs are recorded."""
        return RunStore(folder, self.root, self.command, self.every)


def train(
    waiting: Sequence[Job], store: RunStore, *, jobs: int, threads: int, watch: Watch
) -> None:
    """Run what is not on record: runs so many at a time, then timings, one after the other.

    Raises:
        SelectiveBackpropError: what a run raised.
    """
    plans = [job for job in waiting if isinstance(job, RunConfig)]
    run_grid(
        plans,
        store,
        watch=watch,
        jobs=jobs,
        threads=threads,
        interleave=False,
        log_examples=False,
    )
    for job in waiting:
        if isinstance(job, StepTiming):
            job.measure(store.folder, root=store.root, command=store.command)


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
    """Say what is on record and how long the rest takes, and train that.

    Args:
        console: where progress is shown.
        needed: everything that is wanted.
        order: how to train.
        folder: of the records.
        absent: data sets that are not at hand; what needs them is left out.
    """
    make_folder(folder)
    possible = [job for job in needed if data_of(job) not in (absent or {})]
    done = [job for job in possible if is_done(job, folder)]
    waiting = [job for job in possible if job not in done]
    parts = [f"{len(needed)} runs: {len(done)} on record"]
    if len(possible) < len(needed):
        parts.append(f"{len(needed) - len(possible)} left out for want of their data")
    if waiting:
        time = spell(time_left(waiting, pace_of(done, folder), order.jobs))
        parts.append(f"{len(waiting)} to do, about {time}")
    console.print(", ".join(parts), soft_wrap=True)
    if waiting:
        plans = [job for job in waiting if isinstance(job, RunConfig)]
        with RunProgress(console, plans, weight=work, name=name_of) as progress:
            store, jobs, threads = order.store(folder), order.jobs, order.threads
            train(waiting, store, jobs=jobs, threads=threads, watch=progress)


def default_jobs(device: str, threads: int) -> int:
    """Return how many runs there is room for at a time."""
    cores = hardware()["cores"]
    assert isinstance(cores, int)
    return max(1, cores // threads) if device == "cpu" else 1


def file_of(job: Job, folder: Path = Path()) -> Path:
    """Return the record of a job, by which it is known."""
    if isinstance(job, StepTiming):
        return job.file(folder)
    return RunStore(folder).path(job)


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


def pace_of(done: Iterable[Job], folder: Path) -> Pace:
    """Return how fast the runs on record were."""
    runs = (job for job in done if isinstance(job, RunConfig))
    return Pace((plan, read_run(file_of(plan, folder))) for plan in runs)


def time_left(waiting: Iterable[Job], pace: Pace, jobs: int) -> float | None:
    """Return the seconds that jobs take, so many at a time; None where that of one is unknown."""
    return total(
        [pace.seconds(job) if isinstance(job, RunConfig) else TIMING for job in waiting], jobs
    )


def absent_data(needed: Iterable[Job], root: Path | None) -> dict[str, str]:
    """Return why each data set that is not at hand is not, and what to do about it."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(map(data_of, needed)):
        try:
            datasets.load(name, root=root, limit=None)
        except (sb.DataError, sb.ConfigurationError) as error:
            found[name] = str(error)
    return found
