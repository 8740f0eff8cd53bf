"""What a figure or table of a paper is made of: the runs it needs, and what is made of them."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Drawing

from reproductions.timing import StepTimes, StepTiming
from selective_backprop.lab.analysis.grouping import RunGroup, counts
from selective_backprop.lab.analysis.tables import Table
from selective_backprop.lab.analysis.verdict import Finding
from selective_backprop.lab.recipe import Recipe
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.styles import Style
from selective_backprop.lab.training.run_config import RunConfig

_CLASSES = {"cifar100": 100}  # of data sets that have more than ten


@dataclass(frozen=True)
class Setting:
    """A data set, a net and a length, the same for every strategy."""

    title: str  # what figures call it
    recipe: Recipe  # every run takes its epochs
    rate: float  # share of the examples that SB and Stale-SB train on
    kath18_rate: float
    paper_data: str  # the paper's data set that it is held against
    limit: int | None = None  # training examples, or None for all
    evaluations: int = 12  # per run
    accelerated: Recipe | None = None  # with the paper's accelerated schedule, where it has one

    @property
    def guessing(self) -> float:
        """The error of guessing, in percent: a target that is no lower says nothing."""
        return 100.0 * (1.0 - 1.0 / _CLASSES.get(self.recipe.data, 10))

    @property
    def warmup(self) -> float:
        """The first epoch, which trains on everything, as a share of the run."""
        return 1.0 / self.recipe.epochs


@dataclass(frozen=True)
class Scale:
    """Which settings each group of figures uses."""

    name: str
    main: tuple[Setting, ...]  # where the strategies are compared
    redundant: Setting  # of them, the one whose time figure 1 takes apart
    noisy: Setting  # where labels are flipped
    swept: tuple[Setting, ...]  # where strategies, selectivities and schedules are combined
    sweep: tuple[float, ...]  # the selectivities of that
    nets: tuple[Setting, ...]  # one data set with several nets
    poster: tuple[Setting, ...]  # what the poster trained on
    timed: tuple[Recipe, ...]  # recipes whose steps are timed
    pruned: Setting  # where a part of the data set is left out from the start
    scored: tuple[Setting, Setting]  # two young nets whose EL2N scores of it are compared
    figures: tuple[str, ...] | None = None  # what can be redone, by name; None for everything


@dataclass(frozen=True)
class Entry:
    """One strategy in one setting, to be run with several seeds."""

    label: str  # what the figure calls it
    plan: RunConfig  # what to run, with seed 0
    style: Style
    key: str  # what judges know it by: the same in every panel

    def arm(self, runs: Iterable[Run]) -> RunGroup:
        """Return the entry with its runs."""
        ordered = sorted(runs, key=lambda run: run.header.seed)
        finished = tuple(run for run in ordered if counts(run))
        return RunGroup(
            name=self.plan.arm, label=self.label, length=self.plan.length, runs=finished
        )


@dataclass(frozen=True)
class PanelSpec:
    """Strategies that are compared with one another, in one setting."""

    title: str
    setting: Setting
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class PanelData:
    """A panel with the records of its runs, one arm for each entry."""

    panel: PanelSpec
    arms: tuple[RunGroup, ...]

    @property
    def title(self) -> str:
        """Of the panel."""
        return self.panel.title

    @property
    def pairs(self) -> list[tuple[Entry, RunGroup]]:
        """Each entry that has finished runs, with them."""
        both = zip(self.panel.entries, self.arms, strict=True)
        return [(entry, arm) for entry, arm in both if arm.runs]

    @property
    def only(self) -> RunGroup:
        """The arm of a panel with one entry."""
        ((_, arm),) = self.pairs
        return arm

    def find(self, key: str) -> RunGroup | None:
        """Return the arm of a key, where it has finished runs."""
        return next((arm for entry, arm in self.pairs if entry.key == key), None)


@dataclass(frozen=True)
class Found:
    """All that a figure or table can be made of."""

    scale: Scale
    panels: tuple[PanelData, ...] = ()
    timings: tuple[StepTimes, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be run, and what to do about it
    root: Path | None = None  # of the data sets' files, for figures that show images

    @property
    def runs(self) -> list[Run]:
        """Every record that is shown."""
        unique = {id(run): run for each in self.panels for arm in each.arms for run in arm.runs}
        return list(unique.values())


@dataclass(frozen=True)
class Presentation:
    """A figure, tables, and what they say of the paper's claims."""

    figure: Drawing | None = None
    tables: Sequence[Table] = ()
    findings: Sequence[Finding] = ()


def presented(
    found: Found,
    figure: Drawing | None = None,
    table: Callable[[PanelData], Table] | None = None,
    judge: Callable[[PanelData], Iterable[Finding]] | None = None,
) -> Presentation:
    """Return a figure with a table of each panel, and what is found in each."""
    return Presentation(
        figure,
        [table(each) for each in found.panels] if table else [],
        [finding for each in found.panels for finding in judge(each)] if judge else [],
    )


@dataclass(frozen=True)
class Figure:
    """One figure or table of a source."""

    name: str  # as the command knows it
    title: str  # what it shows
    source: str  # where it was published
    reported: tuple[str, ...]  # what the source says of it, one sentence each
    present: Callable[[Found], Presentation]
    panels: Callable[[Scale], Sequence[PanelSpec]]
    timings: Callable[[Scale], Sequence[StepTiming]] = lambda scale: ()


def figures_of(reported: Path, made: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Return what is made of the figures that a file says the source reports.

    Args:
        reported: title, source and sentences of each figure.
        made: the fields from `present` on, by name.
    """
    figures = []
    for name, said in tomllib.loads(reported.read_text(encoding="utf-8")).items():
        sentences = tuple(said["reported"])
        figures.append(Figure(name, said["title"], said["source"], sentences, *made[name]))
    return tuple(figures)
