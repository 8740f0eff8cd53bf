"""The records of a stage: its workloads, their best learning rates, and the gains of `auto`.

The gain of a strategy is its final error minus that of its rival, seed by seed: the best
traditional training of any length up to the same cost. Rates and the rival's length are chosen on
tuning seeds, which are not judged. The jobs of a strategy on one page are judged together.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from reproductions.auto import protocol
from reproductions.auto.protocol import MEASURES, OURS, Cell, Stage, Tuned, Workload
from reproductions.measures import together
from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.estimates import Estimate, Side, estimate, holm
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.records.frame import frame
from selective_backprop_lab.training.run_config import RunConfig

RUNS = "runs"
VERDICTS: Mapping[Side, str] = {"lower": "gains", "unresolved": "level", "higher": "loses"}
_MOST = 300  # seeds of a stage; those of tuning are beyond


@dataclass(frozen=True, eq=False)
class Results:
    """One workload with its finished runs, as rows of the lab's frame."""

    workload: Workload
    runs: pd.DataFrame  # each at the learning rate that tuning found
    tuning: pd.DataFrame
    rates: Mapping[Cell, Tuned]
    missing: int  # runs that are not on record

    @cached_property
    def rivals(self) -> dict[float, float]:
        """The lengths at which a strategy can be compared, and that of its rival at each."""
        there = {*self.runs.length[self.runs.arm != queries.BASELINE]}
        found = {each: self.rival(each) for each in self.workload.compared if each in there}
        return {length: rival for length, rival in found.items() if rival}

    def on_shared_seeds(self) -> "Results":
        seeds = set.intersection(*self.runs.groupby("arm").seed.agg(set))
        return replace(self, runs=self.runs[self.runs.seed.isin(seeds)])

    @cache  # noqa: B019 - results live as long as the program
    def of(self, arm: str, length: float) -> pd.DataFrame:
        if arm == protocol.THINNED:
            cells = [(each, Budget("cost", length)) for each in protocol.THINNINGS]
            known = {cell[0]: self.rates[cell].error for cell in cells if cell in self.rates}
            arm = min(known, key=known.__getitem__, default=arm)
        return self.runs[(self.runs.arm == arm) & (self.runs.length == length)]

    def rival(self, length: float, arm: str = queries.BASELINE) -> float | None:
        """Return the length of the best traditional training up to a length, by tuning seeds."""
        errors = self._tuned_errors(arm)
        return min((at for at in errors if at <= length), key=errors.__getitem__, default=None)

    def _tuned_errors(self, arm: str) -> dict[float, float]:
        every = {at.value: own.error for (name, at), own in self.rates.items() if name == arm}
        return {at: error for at, error in every.items() if len(self.of(arm, at))}

    @cache  # noqa: B019 - results live as long as the program
    def ends(self, arm: str, length: float) -> pd.Series:
        return queries.final(self.of(arm, length), self.workload.column)

    def error(self, arm: str, length: float) -> Estimate:
        return _times(estimate([*self.ends(arm, length)]), self.workload.scale)

    def _difference(self, one: tuple[str, float], other: tuple[str, float]) -> Estimate:
        pair = self.of(*one), self.of(*other)
        least = queries.resolution(*pair) if self.workload.column == "error" else 0.0
        found = estimate([*queries.difference(self.ends(*one), self.ends(*other))], least)
        return _times(found, self.workload.scale)

    @cache  # noqa: B019 - several tables ask for each
    def gain(self, arm: str, length: float) -> Estimate:
        """Return a strategy's error minus that of its rival; below zero it pays."""
        # Other seeds of the rival may stop early too.
        own = self.rival(length, arm) if arm == protocol.NULL else length
        rival = self.rival(length)
        if rival is None or own is None:
            return estimate([])
        return self._difference((arm, own), (queries.BASELINE, rival))

    def gain_in_time(self, arm: str, length: float) -> Estimate:
        """Return a strategy's error minus that of the best plain training in as many CPU seconds.

        Between the lengths of plain training, its error is linear in the logarithm of the seconds.
        The estimate has no seeds if the seconds do not compare.
        """
        own, plain = self.of(arm, length), self.runs[self.runs.arm == queries.BASELINE]
        if not len(own) or not together(pd.concat([own, plain])):
            return estimate([])
        known = self._tuned_errors(queries.BASELINE)
        lengths = sorted(known)
        spent = {each: np.log(self.seconds(queries.BASELINE, each)) for each in lengths}
        at = np.log(self.seconds(arm, length))

        def then(ends: Mapping[float, float]) -> float:
            return float(np.interp(at, [*spent.values()], [ends[each] for each in lengths]))

        best = min(lengths, key=lambda each: known[each] if spent[each] <= at else math.inf)
        if known[best] < then(known):
            rival = self.ends(queries.BASELINE, best)
        else:
            every = {each: self.ends(queries.BASELINE, each) for each in lengths}
            rival = pd.DataFrame(every).dropna().apply(then, axis=1)
        found = estimate([*queries.difference(self.ends(arm, length), rival)])
        return _times(found, self.workload.scale)

    def seconds(self, arm: str, length: float) -> float:
        """Return the mean CPU time of the runs of a strategy at a length, without evaluations."""
        return float(self.of(arm, length).groupby("seed").cpu_seconds.max().mean())

    def gain_by(self, arm: str, length: float, *, measure: str) -> Estimate:
        """Return by how much one of `MEASURES` ends above that of the strategy's rival."""
        column, scale = MEASURES[measure]
        pair = self.of(arm, length), self.of(queries.BASELINE, self.rivals[length])
        if column == "class_errors":
            ends = [queries.last(runs)[column].map(np.nanmean).astype(float) for runs in pair]
        else:
            ends = [queries.final(runs, column) for runs in pair]
        return _times(estimate([*queries.difference(*ends)]), scale)

    def gain_as_classes_come(self, arm: str, length: float) -> Estimate:
        """Return a gain with each class weighed by its share of the training data."""
        pair = self.of(arm, length), self.of(queries.BASELINE, self.rivals[length])
        return estimate([*queries.difference(*map(queries.error_as_it_comes, pair))])

    def added(self, arm: str, length: float, *, other: str) -> Estimate:
        """Return a strategy's error minus that of another one at the same cost."""
        return self._difference((arm, length), (other, length))

    def change(self, arm: str, length: float) -> Estimate:
        """Return the gain of a strategy in per cent of its rival's error; unknown if this is 0."""
        error = self.error(queries.BASELINE, self.rivals[length]).mean
        return _times(self.gain(arm, length), 100.0 / error) if error else estimate([])

    def passes(self, arm: str, length: float) -> float | None:
        """Return how many times as long traditional training takes to its error, if ever."""
        plain = self.runs[self.runs.arm == queries.BASELINE]
        reached = queries.passes_to(plain, self.ends(arm, length).mean(), self.workload.column)
        return None if reached is None else reached / length


Gain = Callable[[Results, str, float], Estimate]  # of a strategy, at a length


@dataclass(frozen=True)
class Judged:
    """The gain of a strategy in a job, which is a workload at a length, and the verdict."""

    results: Results
    length: float
    gain: Estimate
    verdict: str

    @property
    def title(self) -> str:
        return f"{self.results.workload.title} at {self.length:g}"


def judged(results: Iterable[Results], arm: str = OURS, gain: Gain = Results.gain) -> list[Judged]:
    """Judge a strategy in all jobs in which it and its rival have runs, with Holm's correction."""
    jobs = [(each, length) for each in results for length in each.rivals]
    jobs = [(each, length) for each, length in jobs if each.gain(arm, length).seeds]
    found = [(*job, gain(job[0], arm, job[1])) for job in jobs]
    found = [job for job in found if job[-1].seeds]
    sides = holm([own for *_, own in found])
    return [Judged(*job, VERDICTS.get(side, "–")) for job, side in zip(found, sides, strict=True)]


def read_finished(folder: Path) -> pd.DataFrame:
    records = folder / RUNS
    found = queries.counted(frame(*([records] if records.is_dir() else [])))
    return found.set_index("run", drop=False)


def find_rates(
    workload: Workload, there: pd.DataFrame, device: str, arms: Sequence[str]
) -> tuple[list[RunConfig], pd.DataFrame, dict[Cell, Tuned]]:
    """Return the tuning runs that are wanted, the finished ones, and the best rates so far."""
    wanted, rates = list[RunConfig](), dict[Cell, Tuned]()
    while (more := workload.tuning_plans(arms, rates, device)) != wanted:
        wanted, done = more, _among(more, there)
        rates = protocol.tuned(done, workload.column)
    return wanted, done, rates


def read_results(
    stage: Stage, folder: Path, seeds: int | None = None, device: str = "cpu"
) -> list[Results]:
    """Return each workload of a stage with its records in a folder, of all seeds by default."""
    there = read_finished(folder)
    if seeds is None:
        known = there.seed - stage.first_seed
        known = known[(known >= 0) & (known < _MOST)]
        seeds = 1 + int(known.max()) if len(known) else 0
    found = []
    for workload in stage.workloads:
        tuning, tuned_by, rates = find_rates(workload, there, device, stage.arms)
        runs = _among(workload.plans(stage.arms, rates, stage.seeds(seeds), device), there)
        missing = len(workload.cells(stage.arms)) * seeds - len(runs) + len(tuning) - len(tuned_by)
        found.append(Results(workload, runs, tuned_by, rates, missing))
    return found


def _among(plans: Iterable[RunConfig], there: pd.DataFrame) -> pd.DataFrame:
    return there[there.index.isin({plan.record_name for plan in plans})]


def _times(found: Estimate, by: float) -> Estimate:
    return Estimate(by * found.mean, by * found.half_width, found.seeds)
