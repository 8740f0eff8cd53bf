"""What has to be on record before something can be drawn: training runs, and timed steps."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import selective_backprop as sb
from reproductions.jiang2019.costs import seconds, work
from reproductions.jiang2019.items import Entry, Item
from reproductions.jiang2019.settings import Scale
from reproductions.jiang2019.timing import StepTiming, read_step_times
from selective_backprop.lab.data import datasets
from selective_backprop.lab.records.schema import record_name
from selective_backprop.lab.runner.grid import run_grid
from selective_backprop.lab.runner.run_store import RunStore as Place
from selective_backprop.lab.training.run_config import Plan

Tell = Callable[[str], None]
"""Told after each step of a need's work, in words."""


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What a command that trains many runs was told.

    Attributes:
        seeds: how many.
        device: where to train.
        threads: CPU threads of each run.
        jobs: runs at a time.
        root: folder of the data sets' files.
        out: folder of the records and figures.
        command: what was typed, for the records.
        trains: whether what is missing is trained; otherwise it is left out.
        every: seconds of training between two checkpoints; None for the default.
    """

    seeds: int
    device: str
    threads: int
    jobs: int
    root: Path | None
    out: Path
    command: str
    trains: bool = True
    every: float | None = None


@dataclass(frozen=True)
class Trained:
    """A run, recorded to its end."""

    plan: Plan

    @property
    def data(self) -> str:
        """Name of the data set."""
        return self.plan.recipe.data

    @property
    def words(self) -> str:
        """Data, net, strategy with its budget, and seed."""
        plan = self.plan
        noise = f", {100 * plan.noise:g} % flipped" if plan.noise else ""
        budget = f" @ {plan.length.short}" if plan.length.unit != "epochs" else ""
        net = plan.recipe.model
        return f"{plan.recipe.data}{noise}, {net}, {plan.arm}{budget}, seed {plan.seed}"

    @property
    def steps(self) -> int:
        """One for each evaluation."""
        return self.plan.evaluations

    @property
    def seconds(self) -> float | None:
        """As the passes of its net were measured."""
        return seconds(self.plan)

    @property
    def work(self) -> float:
        """Examples passed."""
        return work(self.plan)

    def file(self, folder: Path) -> Path:
        """Return the run's record."""
        plan = self.plan
        return folder / record_name(plan.config(), arm=plan.arm, seed=plan.seed)

    def is_met(self, folder: Path) -> bool:
        """Return whether the record is there, finished, with what its probes saw.

        Raises:
            RecordError: if there is one that was damaged.
        """
        return Place(folder).has_finished(self.plan)

    def meet(self, place: Place, tell: Tell) -> None:
        """Train, from the last checkpoint where the run was interrupted."""
        run_grid(
            [self.plan],
            place,
            log_examples=False,
            watch=lambda plan, point: tell(
                "" if point is None else f"error {point.test_error:.2f} %, cost {point.cost:.2f}"
            ),
        )


@dataclass(frozen=True)
class Timed:
    """Times of a training step."""

    timing: StepTiming

    @property
    def data(self) -> str:
        """Name of the data set."""
        return self.timing.recipe.data

    @property
    def words(self) -> str:
        """Data and net."""
        return f"{self.data}, steps of {self.timing.recipe.model}"

    @property
    def steps(self) -> int:
        """One, at the end."""
        return 1

    @property
    def seconds(self) -> float | None:
        """About half a minute."""
        return 30.0

    @property
    def work(self) -> float:
        """Of no weight beside a run."""
        return 1.0

    def file(self, folder: Path) -> Path:
        """Return where the times are recorded."""
        return self.timing.path(folder)

    def is_met(self, folder: Path) -> bool:
        """Return whether they are; what is recorded is whole."""
        path = self.file(folder)
        return path.exists() and bool(read_step_times(path).phases)

    def meet(self, place: Place, tell: Tell) -> None:
        """Time them."""
        self.timing.measure(place.folder, root=place.root, command=place.command)
        tell("timed")


Need = Trained | Timed
"""Something that is computed once, into a file of its own, and shared by all that need it.

It is known by that file: equal configurations have the same one.
"""


class Needs:
    """What items need, each thing once, in an order that suits comparison.

    Runs of one data set and seed lie beside each other, so that a machine which changes its speed
    does so for all strategies. A run that several items share has the probes of them all, so that
    it need not be repeated for one that is drawn later.

    Args:
        items: whatever may be drawn.
        scale: at which.
        seeds: how many.
        device: where to train.
    """

    def __init__(self, items: Iterable[Item], scale: Scale, *, seeds: int, device: str) -> None:
        found: dict[Path, Need] = {}
        self._files: dict[str, set[Path]] = {}
        for item in items:
            runs = _runs_of(item, scale, seeds=seeds, device=device)
            needs = (*runs, *timed_of(item, scale, device))
            self._files[item.name] = {_enter(found, need) for need in needs}
        self._found = sorted(found.items(), key=lambda pair: _turn(pair[1]))

    def of(self, items: Iterable[Item]) -> list[Need]:
        """Return what some of the items need."""
        wanted = {file for item in items for file in self._files[item.name]}
        return [need for file, need in self._found if file in wanted]


def needs_of(items: Collection[Item], scale: Scale, *, seeds: int, device: str) -> list[Need]:
    """Return everything that items need, as `Needs` has it."""
    return Needs(items, scale, seeds=seeds, device=device).of(items)


def _runs_of(item: Item, scale: Scale, *, seeds: int, device: str) -> Iterator[Trained]:
    for panel in item.panels(scale):
        for entry in panel.entries:
            yield from seeds_of(entry, seeds=seeds, device=device)


def _enter(found: dict[Path, Need], need: Need) -> Path:
    """Add a need, or its probes to the run that is there already, and return its file."""
    file = need.file(Path())
    there = found.setdefault(file, need)
    if isinstance(there, Trained) and isinstance(need, Trained):
        probes = tuple(dict.fromkeys((*there.plan.probes, *need.plan.probes)))
        if probes != there.plan.probes:
            found[file] = Trained(replace(there.plan, probes=probes))
    return file


def seeds_of(entry: Entry, *, seeds: int, device: str) -> list[Trained]:
    """Return the runs of one entry, a seed each."""
    return [Trained(replace(entry.plan, seed=seed, device=device)) for seed in range(seeds)]


def timed_of(item: Item, scale: Scale, device: str) -> list[Timed]:
    """Return the timings of one item."""
    return [Timed(replace(timing, device=device)) for timing in item.timings(scale)]


def missing_data(needs: Sequence[Need], root: Path | None) -> dict[str, str]:
    """Return why each data set that is not at hand is not, and what to do about it."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(need.data for need in needs):
        try:
            datasets.load(name, root=root, limit=None)
        except (sb.DataError, sb.ConfigurationError) as error:
            found[name] = str(error)
    return found


def _turn(need: Need) -> tuple[bool, int, str]:
    if isinstance(need, Trained):
        return False, need.plan.seed, need.data
    return True, 0, need.data
