"""What a figure or table of a paper is made of: runs it needs, and what is made of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from matplotlib.figure import Figure

from reproductions.jiang2019.judging import Finding
from reproductions.jiang2019.settings import Scale, Setting
from reproductions.jiang2019.text import Grid
from reproductions.jiang2019.timing import StepTimes, StepTiming
from selective_backprop.lab.analysis.grouping import Arm, counts
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.styles import Style
from selective_backprop.lab.training.run_config import Plan


class Source(StrEnum):
    """Where a figure or table was published."""

    PAPER = "Jiang et al. 2019, arXiv:1910.00762"
    POSTER = "the Selective-Backprop poster"
    DIET_SB = "Diet-SB"


@dataclass(frozen=True)
class Entry:
    """One strategy in one setting, to be run with several seeds.

    Attributes:
        label: what the figure calls it.
        plan: what to run, with seed 0.
        style: how it is drawn.
        key: what presenters know it by: the same in every panel.
    """

    label: str
    plan: Plan
    style: Style
    key: str

    def arm(self, runs: Sequence[Run]) -> Arm:
        """Return the entry with its runs."""
        runs = sorted(runs, key=lambda run: run.header.seed)
        return Arm(
            name=self.plan.arm,
            label=self.label,
            length=self.plan.length,
            runs=tuple(run for run in runs if counts(run)),
        )


@dataclass(frozen=True)
class Panel:
    """Strategies that are compared with one another.

    Attributes:
        title: of the panel.
        setting: that its entries share.
        entries: what is compared.
    """

    title: str
    setting: Setting
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Filled:
    """A panel with the records of its runs.

    Attributes:
        panel: what was planned.
        arms: of each entry, in order.
    """

    panel: Panel
    arms: tuple[Arm, ...]

    @property
    def pairs(self) -> list[tuple[Entry, Arm]]:
        """Each entry that has finished runs, with them."""
        both = zip(self.panel.entries, self.arms, strict=True)
        return [(entry, arm) for entry, arm in both if arm.runs]

    def find(self, key: str) -> Arm | None:
        """Return the arm of a key, where it has finished runs."""
        return next((arm for entry, arm in self.pairs if entry.key == key), None)


@dataclass(frozen=True)
class Found:
    """All that a figure or table can be made of.

    Attributes:
        scale: at which it was run.
        panels: with their records.
        timings: of training steps.
        missing: what could not be run, and what to do about it.
        root: folder of the data sets' files, for figures that show images.
    """

    scale: Scale
    panels: tuple[Filled, ...] = ()
    timings: tuple[StepTimes, ...] = ()
    missing: tuple[str, ...] = ()
    root: Path | None = None

    @property
    def runs(self) -> list[Run]:
        """Every record that is shown."""
        unique = {id(run): run for each in self.panels for arm in each.arms for run in arm.runs}
        return list(unique.values())


@dataclass(frozen=True)
class Presentation:
    """A figure, tables, and what they say of the paper's claims."""

    figure: Figure | None = None
    tables: tuple[Grid, ...] = ()
    findings: tuple[Finding, ...] = ()


def _no_panels(scale: Scale) -> tuple[Panel, ...]:
    return ()


def _no_timings(scale: Scale) -> tuple[StepTiming, ...]:
    return ()


@dataclass(frozen=True)
class Item:
    """One figure or table of a source.

    Attributes:
        name: as the command knows it.
        title: what it shows.
        source: where it was published.
        reported: what the source says of it, one sentence each.
        present: makes it from what was found.
        panels: the runs it needs, at a scale.
        timings: the steps it needs timed.
    """

    name: str
    title: str
    source: Source
    reported: tuple[str, ...]
    present: Callable[[Found], Presentation]
    panels: Callable[[Scale], tuple[Panel, ...]] = _no_panels
    timings: Callable[[Scale], tuple[StepTiming, ...]] = _no_timings
