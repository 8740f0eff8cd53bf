"""The one way to the lab's runner: what is on record, what is missing, and how to get it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import selective_backprop as sb
from reproductions.costs import Pace, spell, total
from reproductions.timing import StepTiming, read_step_times
from selective_backprop.lab.data import datasets
from selective_backprop.lab.data.folders import make_folder
from selective_backprop.lab.records.provenance import hardware
from selective_backprop.lab.records.schema import Point, read_run, record_name
from selective_backprop.lab.runner.interleaved import Watch, is_whole, run_plans
from selective_backprop.lab.runner.progress import Live
from selective_backprop.lab.runner.run_store import Place
from selective_backprop.lab.runner.worker_pool import carry_out
from selective_backprop.lab.training.run_config import Plan

TIMING = 30.0  # seconds that the timing of steps takes, about
Job = Plan | StepTiming
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

    def place(self, folder: Path) -> Place:
        """Return where runs are recorded."""
        return Place(folder, self.root, self.command, self.every)


@dataclass(frozen=True, eq=False)
class _Run:
    """One run, as the lab's pool of workers carries it out."""

    plan: Plan
    place: Place

    @property
    def words(self) -> str:
        """Data, net, strategy and seed."""
        recipe, plan = self.plan.recipe, self.plan
        return f"{recipe.data}, {recipe.model}, {plan.arm}, seed {plan.seed}"

    def carry_out(self, tell: Callable[[tuple[Plan, Point | None]], None]) -> None:
        """Train, from the last checkpoint where the run was interrupted."""
        run_plans(
            [self.plan],
            self.place.data(self.plan),
            self.place.folder,
            command=self.place.command,
            every=self.place.every,
            watch=lambda plan, point: tell((plan, point)),
        )


def train(waiting: Sequence[Job], place: Place, *, jobs: int, threads: int, watch: Watch) -> None:
    """Run what is not on record: runs so many at a time, then timings, one after the other.

    Whatever stops this costs what is under way its time since the last checkpoint, and no more.

    Raises:
        SelectiveBackpropError: what a run raised.
    """
    runs = [_Run(job, place) for job in waiting if isinstance(job, Plan)]

    def hear(_: _Run, news: tuple[Plan, Point | None] | None) -> None:
        if news is not None:
            watch(*news)

    if runs:
        carry_out(runs, jobs=jobs, threads=threads, watch=hear)
    for job in waiting:
        if isinstance(job, StepTiming):
            job.measure(place.folder, root=place.root, command=place.command)


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
        plans = [job for job in waiting if isinstance(job, Plan)]
        with Live(console, plans, jobs=order.jobs) as live:
            place, jobs, threads = order.place(folder), order.jobs, order.threads
            train(waiting, place, jobs=jobs, threads=threads, watch=live)


def default_jobs(device: str, threads: int) -> int:
    """Return how many runs there is room for at a time."""
    cores = hardware()["cores"]
    assert isinstance(cores, int)
    return max(1, cores // threads) if device == "cpu" else 1


def file_of(job: Job, folder: Path = Path()) -> Path:
    """Return the record of a job, by which it is known."""
    if isinstance(job, StepTiming):
        return job.file(folder)
    return folder / record_name(job.config(), arm=job.arm, seed=job.seed)


def is_done(job: Job, folder: Path) -> bool:
    """Return whether a job is on record, finished, with what its probes saw.

    Raises:
        RecordError: if there is a record that was damaged.
    """
    file = file_of(job, folder)
    if isinstance(job, StepTiming):
        return file.exists() and bool(read_step_times(file).phases)
    return is_whole(job, file)


def data_of(job: Job) -> str:
    """Return the name of the data set."""
    return job.recipe.data


def pace_of(done: Iterable[Job], folder: Path) -> Pace:
    """Return how fast the runs on record were."""
    runs = (job for job in done if isinstance(job, Plan))
    return Pace((plan, read_run(file_of(plan, folder))) for plan in runs)


def time_left(waiting: Iterable[Job], pace: Pace, jobs: int) -> float | None:
    """Return the seconds that jobs take, so many at a time; None where that of one is unknown."""
    return total([pace.seconds(job) if isinstance(job, Plan) else TIMING for job in waiting], jobs)


def absent_data(needed: Iterable[Job], root: Path | None) -> dict[str, str]:
    """Return why each data set that is not at hand is not, and what to do about it."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(map(data_of, needed)):
        try:
            datasets.load(name, root=root, limit=None)
        except (sb.DataError, sb.ConfigurationError) as error:
            found[name] = str(error)
    return found
