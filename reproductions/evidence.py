"""The frame of a figure: the evaluations of each arm of each of its panels."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from reproductions.measures import last, together
from reproductions.settings import Arm, Scale, Setting
from reproductions.training import StepTimes
from selective_backprop_lab.analysis.tables import Table
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.records.frame import frame_of
from selective_backprop_lab.runner.grid import load_data

_NO_RUNS = frame_of(()).assign(key="")
SAME = "is Traditional here"  # said of an arm whose gate never opened


@dataclass(frozen=True)
class Panel:
    """Arms that are compared in one setting, and their evaluations: none of a planned panel."""

    title: str
    setting: Setting
    arms: tuple[Arm, ...]
    # The columns of `records.frame`, and `key`.
    runs: pd.DataFrame = field(default_factory=lambda: _NO_RUNS, repr=False)
    root: Path | None = None  # of the data sets' files
    absent: tuple[Arm, ...] = ()  # planned, without finished runs

    def __getitem__(self, key: str) -> pd.DataFrame:
        """Return the evaluations of an arm; no rows if it has no finished runs."""
        return self._by_key.get(key, self.runs[:0])

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    @cached_property
    def _by_key(self) -> dict[object, pd.DataFrame]:
        return dict(iter(self.runs.groupby("key")))

    def gate_shut(self, key: str) -> str:
        """Say that the gate of an arm stayed shut with most seeds, so it trained on everything."""
        if not key.startswith("kath18") or key not in self:
            return ""
        ends = last(self[key])
        shut, seeds = int((ends.trained == ends.candidates).sum()), len(ends)
        if 2 * shut <= seeds:
            return ""
        return SAME if shut == seeds else f"is Traditional with {shut} of {seeds} seeds"

    def repeats_traditional(self, key: str) -> bool:
        """Return whether an arm has the errors of traditional training at every evaluation."""
        same = self.gate_shut(key) == SAME and "traditional" in self
        return same and [*self[key].error] == [*self["traditional"].error]

    def only(self, arms: Iterable[Arm]) -> "Panel":
        """Return the panel with some of its arms."""
        keys = {arm.key: arm for arm in arms}
        return replace(self, arms=(*keys.values(),), runs=self.runs[self.runs.key.isin(keys)])

    @cached_property
    def timed(self) -> "Panel":
        """The panel with the arms whose seconds compare with those of the first."""
        first, keys = self.arms[0].key if self.arms else "", self.runs.key
        return self.only(a for a in self.arms if together(self.runs[keys.isin({a.key, first})]))

    def table(
        self,
        cells: Callable[[Arm, pd.DataFrame], Mapping[str, str]],
        title: str = "",
        head: str = "strategy",
    ) -> Table:
        """Return a table with a row for each arm: its label, and cells by column."""
        rows = [{head: arm.label, **cells(arm, self[arm.key])} for arm in self.arms]
        return Table([*rows[0]], [[*row.values()] for row in rows], title or self.title)

    @property
    def images(self) -> LabData:
        """The data set of the panel's runs."""
        return load_data(self.setting.recipe.data, root=self.root, limit=self.setting.limit)


@dataclass(frozen=True)
class Evidence:
    """The records that a figure or table is made of."""

    scale: Scale
    panels: tuple[Panel, ...] = ()
    timings: tuple[StepTimes, ...] = ()
    words: str = ""  # at the start of the caption
    missing: tuple[str, ...] = ()  # the missing runs and data, in sentences

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The first evaluation of each run."""
        frames = [panel.runs for panel in self.panels] or [_NO_RUNS]
        return pd.concat(frames).drop_duplicates(["folder", "run"])
