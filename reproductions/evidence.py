"""The frame of a figure: the evaluations of each arm of each of its panels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from reproductions.measures import last, together
from reproductions.settings import Arm, Scale, Setting
from reproductions.timing import StepTimes
from selective_backprop_lab.analysis.tables import Table
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.records.frame import frame_of
from selective_backprop_lab.runner.run_store import load_data

_NO_RUNS = frame_of(()).assign(key="")
SAME = "is Traditional here"
"""Said of an arm whose gate never opened."""


@dataclass(frozen=True)
class Panel:
    """Arms that are compared with one another in one setting.

    As planned it has no rows; as read from records it has those of the arms with finished runs.
    """

    title: str
    setting: Setting
    arms: tuple[Arm, ...]
    runs: pd.DataFrame = field(
        default_factory=lambda: _NO_RUNS, repr=False
    )  # of `records.frame`, with `key`
    root: Path | None = None  # of the data sets' files
    absent: tuple[Arm, ...] = ()  # planned, without finished runs

    def __getitem__(self, key: str) -> pd.DataFrame:
        """Return the evaluations of an arm: no rows where it has no finished runs."""
        return self._by_key.get(key, self.runs[:0])

    @cached_property
    def _by_key(self) -> dict[object, pd.DataFrame]:
        return dict(iter(self.runs.groupby("key")))

    def __contains__(self, key: str) -> bool:
        """Return whether an arm has finished runs."""
        return key in self._by_key

    def gate_shut(self, key: str) -> str:
        """Say that an arm trained on everything, its gate shut, with all or most seeds; or ""."""
        ends = last(self[key])
        if not key.startswith("kath18") or ends.empty:
            return ""
        shut, seeds = int((ends.trained == ends.candidates).sum()), len(ends)
        if 2 * shut <= seeds:
            return ""
        return SAME if shut == seeds else f"is Traditional with {shut} of {seeds} seeds"

    def repeats_traditional(self, key: str) -> bool:
        """Return whether an arm has the errors of traditional training at every evaluation."""
        if self.gate_shut(key) != SAME or "traditional" not in self:
            return False
        return [*self[key].error] == [*self["traditional"].error]

    @property
    def timed(self) -> "Panel":
        """It, with the arms whose seconds compare with those of the first."""
        first = self.arms[:1]
        kept = tuple(
            arm
            for arm in self.arms
            if together(self.runs[self.runs.key.isin({arm.key, *(each.key for each in first)})])
        )
        runs = self.runs[self.runs.key.isin({arm.key for arm in kept})]
        return replace(self, arms=kept, runs=runs)

    @property
    def first_seed(self) -> "Panel":
        """It, with the runs of its lowest seed alone."""
        return replace(self, runs=self.runs[self.runs.seed == self.runs.seed.min()])

    def table(
        self,
        columns: Mapping[str, Callable[[pd.DataFrame], str]],
        title: str = "",
        head: str = "strategy",
    ) -> Table:
        """Return a table with a row for each arm, and what columns write of its evaluations."""
        rows = [
            (arm.label, *(write(self[arm.key]) for write in columns.values())) for arm in self.arms
        ]
        return Table((head, *columns), rows, title or self.title)

    @property
    def images(self) -> LabData:
        """The data set that it was trained on."""
        return load_data(self.setting.recipe.data, self.root, self.setting.limit)


@dataclass(frozen=True)
class Evidence:
    """All that a figure or table can be made of."""

    scale: Scale
    panels: tuple[Panel, ...] = ()
    timings: tuple[StepTimes, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be run, and what to do about it

    @property
    def runs(self) -> pd.DataFrame:
        """A row for each run that is used."""
        frames = [panel.runs for panel in self.panels] or [_NO_RUNS]
        return pd.concat(frames).drop_duplicates(["folder", "run"])
