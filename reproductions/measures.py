"""The frame of a figure, and measures of its arms: a number for each seed, of one arm or of two."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from reproductions.probes import unpack
from reproductions.settings import Arm, Scale, Setting
from reproductions.training import StepTimes
from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.estimates import Curve, Estimate, estimate
from selective_backprop_lab.analysis.queries import last
from selective_backprop_lab.analysis.tables import Table, with_interval
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.records.frame import each_run, frame_of
from selective_backprop_lab.runner.grid import load_data
from selective_backprop_lab.shapes import Float64, Shaped
from selective_backprop_lab.training.run_config import Probe

_NO_RUNS = frame_of(()).assign(key="")
SAME = "is Traditional here"  # said of an arm whose gate never opened
CLOCKS = ("seconds", "cpu_seconds")  # the axes that depend on the machine
Numbers = Shaped[Tensor, " example"]
Cells = Callable[[Arm, pd.DataFrame], Mapping[str, str]]  # of a row of a table, by column
Pick = Callable[[Any], float]  # takes one number out of a row of what a probe saw


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
        keys = {arm.key: arm for arm in arms}
        return replace(self, arms=(*keys.values(),), runs=self.runs[self.runs.key.isin(keys)])

    @cached_property
    def timed(self) -> "Panel":
        """The panel with the arms whose seconds compare with those of the first."""
        first, keys = self.arms[0].key if self.arms else "", self.runs.key
        return self.only(a for a in self.arms if together(self.runs[keys.isin({a.key, first})]))

    def table(self, cells: Cells, title: str = "", head: str = "strategy") -> Table:
        rows = [{head: arm.label, **cells(arm, self[arm.key])} for arm in self.arms]
        return Table([*rows[0]], [[*row.values()] for row in rows], title or self.title)

    @property
    def images(self) -> LabData:
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


def over_seeds(values: pd.Series) -> Estimate:
    """Return the mean of one number per seed, with its interval."""
    return estimate([*values])


def mean_of(values: pd.Series) -> str:
    return with_interval(over_seeds(values))


def paired(difference: pd.Series) -> Estimate:
    """Return the mean of a difference between two arms over the seeds that both have."""
    return estimate([*difference[np.isfinite(difference)]])


def final_difference(mine: pd.DataFrame, theirs: pd.DataFrame) -> Estimate:
    return paired(queries.final(mine) - queries.final(theirs))


def on_the_way(
    mine: pd.DataFrame, theirs: pd.DataFrame, axis: str, column: str = "error"
) -> tuple[pd.Series, pd.Series]:
    """Return the errors of two arms by seed, in the mean over the part of an axis both cover."""
    columns = {"seed": "seed", axis: axis, column: "error"}
    narrow = [each[[*columns]].rename(columns=columns) for each in (mine, theirs)]
    found = {}
    for seed in sorted(set(mine.seed) & set(theirs.seed)):
        pair = [each[each.seed == seed] for each in narrow]
        ends = queries.span(*pair, axis=axis)
        found[seed] = [queries.mean_error(each, *ends, axis=axis).iloc[0] for each in pair]
    both = pd.DataFrame.from_dict(found, orient="index", columns=[0, 1], dtype=float)
    return both[0], both[1]


def earlier(mine: pd.DataFrame, theirs: pd.DataFrame, axis: str, column: str = "error") -> Estimate:
    """Return how far an arm's error lies above another's, in the mean over what both cover."""
    one, other = on_the_way(mine, theirs, axis, column)
    return paired(one - other)


def clock(runs: pd.DataFrame) -> str:
    """Return the axis that stands for the papers' seconds: CPU seconds, on a GPU wall seconds."""
    # Other programs of the machine lengthen wall seconds, but hardly CPU seconds.
    return "cpu_seconds" if (runs.device == "cpu").any() else "seconds"


def together(runs: pd.DataFrame) -> bool:
    """Return whether seconds compare: one machine, code and day, and no GPU that runs shared."""
    if len({*runs.machine}) > 1 or len({*runs.code}) > 1 or untimed(runs):
        return False
    begun = pd.to_datetime(runs.started.drop_duplicates())
    return not len(begun) or begun.max() - begun.min() < pd.Timedelta(days=1)


def beside(mine: pd.DataFrame, theirs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the evaluations with the seeds whose seconds compare: on a GPU all seeds or none."""
    both = pd.concat([mine, theirs])
    if clock(both) == "seconds":
        seeds = {*both.seed} if together(both) else set()
    else:
        shared = sorted(set(mine.seed) & set(theirs.seed))
        one, other = (last(runs).loc[shared] for runs in (mine, theirs))
        begun = [pd.to_datetime(ends.started) for ends in (one, other)]
        same = (begun[0] - begun[1]).abs() < pd.Timedelta(days=1)
        same &= (one.machine == other.machine) & (one.code == other.code)
        seeds = set(same.index[same & one.seconds.notna() & other.seconds.notna()])
    return mine[mine.seed.isin(seeds)], theirs[theirs.seed.isin(seeds)]


def untimed(runs: pd.DataFrame) -> bool:
    """Return whether some runs have no seconds: they changed machines or shared a GPU."""
    if runs.seconds.isna().any():
        return True
    on_gpu = runs[runs.device != "cpu"]
    runs_on_it = on_gpu.reset_index(drop=True).groupby(["started", "folder", "run"], as_index=False)
    spans = runs_on_it.seconds.max()
    begun = pd.to_datetime(spans.started)
    over = (begun + pd.to_timedelta(spans.seconds, unit="s")).cummax()
    return bool((begun[1:] < over.shift()[1:]).any())


def timed(axes: Sequence[str], runs: pd.DataFrame) -> tuple[str, ...]:
    """Return axes with the runs' own clock for seconds, or cost where seconds do not compare."""
    seconds = clock(runs) if together(runs) else "cost"
    return tuple(dict.fromkeys(seconds if axis == "seconds" else axis for axis in axes))


def at_target(runs: pd.DataFrame, target: float) -> pd.DataFrame:
    """Return the first evaluation of each seed that showed an error or less."""
    return runs[runs.error <= target].drop_duplicates("seed").set_index("seed")


def phase_seconds(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of each phase up to evaluations, on the runs' clock, and of overhead."""
    spent = pd.DataFrame([*evaluations.phases], index=evaluations.index, dtype=float).fillna(0.0)
    spent["overhead"] = evaluations.overhead.fillna(0.0)
    spent = spent.where(evaluations.seconds.notna(), axis=0)
    if clock(evaluations) == "seconds":
        return spent
    share = evaluations.cpu_seconds / evaluations.seconds  # phases are metered in wall seconds
    return spent.mul(share.where(evaluations.seconds > 0, 1.0), axis=0)


def log_ratios(mine: pd.DataFrame, theirs: pd.DataFrame, target: float, axis: str) -> pd.Series:
    """Return the logarithm of how many times sooner an arm shows an error than another, by seed."""
    # Minus infinity if it never does; seeds with which the other never does are left out.
    one, other = (queries.reached(each, target, axis) for each in (mine, theirs))
    return (np.log(other[np.isfinite(other)]) - np.log(one)).dropna()


def curve_at(x: Sequence[float], seeds: Sequence[Sequence[float]]) -> Curve:
    return Curve.over_seeds([x] * len(seeds), seeds)


def observed(runs: pd.DataFrame, probe: type[Probe]) -> pd.DataFrame:
    """Return a row for each time that a probe saw something in runs, in order: what it saw."""
    return pd.DataFrame(
        {"seed": run.seed, "progress": each.progress, **each.seen}
        for run in each_run(runs)
        for each in run.observations
        if each.probe.startswith(f"{probe.__name__}(")
    )


def picked(rows: pd.DataFrame, pick: Pick) -> pd.Series:
    return pd.Series([pick(row) for row in rows.itertuples()], index=rows.index, dtype=float)


def over_training(
    runs: pd.DataFrame, probe: type[Probe], pick: Pick, since: float = 0.0
) -> pd.Series:
    """Return the mean of a number that a probe saw, from a share of the run on, by seed."""
    rows = observed(runs, probe)
    rows = rows[rows.progress >= since]
    return picked(rows, pick).groupby(rows.seed).mean()


def follow(runs: pd.DataFrame, probe: type[Probe], pick: Pick, length: float = 100.0) -> Curve:
    """Return a number that a probe saw over runs that are so long: in per cent."""
    rows = observed(runs, probe)
    seeds = [[*values] for _, values in picked(rows, pick).groupby(rows.seed)]
    return curve_at([*(length * rows.progress[rows.seed == rows.seed.iloc[0]])], seeds)


def seen_last(runs: pd.DataFrame, probe: type[Probe], key: str) -> dict[int, Tensor]:
    """Return one number per example, as a probe saw it when a run was over, by seed."""
    rows = observed(runs, probe).dropna(subset=key)
    return {seed: unpack(text) for seed, text in zip(rows.seed, rows[key], strict=True)}


def mean_over(runs: pd.DataFrame, probe: type[Probe], key: str) -> Float64[Tensor, " example"]:
    return torch.stack([*seen_last(runs, probe, key).values()]).double().mean(0)


def lowest(values: Numbers, share: float) -> Float64[Tensor, " example"]:
    """Return which part of each example is in a share of the lowest; equal ones divide it."""
    room = max(1, round(share * len(values)))
    edge = values.kthvalue(room).values
    below, at = values < edge, values == edge
    return below.double() + at.double() * ((room - below.sum()) / at.sum())


def overlap(one: Numbers, other: Numbers, share: float) -> float:
    """Return how many of the lowest of one are among the other's, in %; by chance, the share."""
    mine, theirs = lowest(one, share), lowest(other, share)
    return 100 * float((mine * theirs).sum() / mine.sum())


def standing(values: Numbers) -> Float64[Tensor, " example"]:
    """Return how many values are lower than each one, plus half of the equal ones."""
    return torch.tensor(pd.Series(values.tolist(), dtype=float).rank().to_numpy()) - 0.5
