"""What is on record of a workload: errors, differences and worth, by strategy and length."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reproductions.auto.protocol import ARMS, ORDER, OURS, Stage, Workload
from selective_backprop_lab.analysis.grouping import BASELINE, Comparison, RunGroup, gather
from selective_backprop_lab.analysis.statistics import (
    Axis,
    Estimate,
    by_seed,
    estimate,
    paired_difference,
)
from selective_backprop_lab.analysis.tuning import Cell, Tuned, tuned
from selective_backprop_lab.analysis.worth import Worth, worth
from selective_backprop_lab.records.schema import Run, read_runs
from selective_backprop_lab.training.run_config import RunConfig

Measure = Callable[[Run], float]

RUNS = "runs"
_MOST = 500  # seeds of a stage; those of tuning are beyond


@dataclass(frozen=True)
class Results:
    """One workload with its finished runs."""

    workload: Workload
    runs: tuple[Run, ...]  # each at the learning rate that tuning found
    tuning: tuple[Run, ...]
    rates: Mapping[Cell, Tuned]
    missing: int  # runs that are not on record

    @cached_property
    def comparison(self) -> Comparison:
        """The runs in groups."""
        return gather(self.runs)

    @cached_property
    def groups(self) -> dict[tuple[str, float], RunGroup]:
        """The groups by strategy and length in passes."""
        return {
            (group.name, group.length.value): group
            for group in (self.comparison.groups if self.runs else ())
        }

    @property
    def arms(self) -> list[str]:
        """The strategies that can be held against traditional training, in the study's order."""
        return [
            arm
            for arm in ORDER
            if arm != BASELINE and any((arm, length) in self.groups for length in self.lengths)
        ]

    @property
    def lengths(self) -> list[float]:
        """The lengths that strategies are compared at, and traditional training was run at."""
        return [each for each in self.workload.compared if (BASELINE, each) in self.groups]

    def error(self, arm: str, length: float, *, measure: Measure | None = None) -> Estimate:
        """Return where a strategy ends, in the workload's measure or another."""
        group = self.groups.get((arm, length))
        return estimate([*by_seed(group, measure or self.workload.measure)] if group else [])

    def difference(
        self,
        arm: str,
        length: float,
        other: str = BASELINE,
        *,
        measure: Measure | None = None,
    ) -> Estimate:
        """Return how much higher a strategy ends than another of the same length, seed by seed."""
        mine, theirs = self.groups.get((arm, length)), self.groups.get((other, length))
        if mine is None or theirs is None:
            return estimate([])
        return paired_difference(mine, theirs, measure or self.workload.measure)

    def worth(
        self, arm: str, length: float, axis: Axis = "cost", *, measure: Measure | None = None
    ) -> Worth:
        """Return what a strategy is worth at a length, by the workload's measure or another."""
        measure = measure or self.workload.measure
        key = arm, length, axis, measure
        if key not in self._worths:
            group = self.groups.get((arm, length))
            self._worths[key] = (
                worth(group, self.comparison, axis, measure=measure)
                if group
                else Worth(reason="it was not run")
            )
        return self._worths[key]

    @cached_property
    def _worths(self) -> dict[tuple[str, float, Axis, Measure], Worth]:
        return {}

    def best_rival(self, length: float) -> str | None:
        """Return which of the others ends lowest, traditional training included.

        That it is chosen by the errors that it is then held against favours it.
        """
        rivals = [arm for arm in ORDER if arm != OURS and (arm, length) in self.groups]
        return min(rivals, key=lambda arm: self.error(arm, length).mean, default=None)


def read_finished(folder: Path) -> dict[str, Run]:
    """Return the finished runs of a stage's folder by the names of their records."""
    records = folder / RUNS
    there = read_runs(records) if records.is_dir() else []
    return {run.name: run for run in there if run.finished}


def find_rates(
    workload: Workload, there: Mapping[str, Run], device: str, arms: Sequence[str] = ARMS
) -> tuple[list[RunConfig], tuple[Run, ...], dict[Cell, Tuned]]:
    """Return the learning rates that are best so far, with the runs on record that say so.

    Returns:
        The runs that are wanted, those among them that are finished, and the best rates.
    """
    wanted, rates = list[RunConfig](), dict[Cell, Tuned]()
    while (more := workload.tuning_plans(arms, rates, device)) != wanted:
        wanted, done = more, _among(more, there)
        rates = tuned(done, workload.measure)
    return wanted, done, rates


def read_results(
    stage: Stage, folder: Path, seeds: int | None = None, device: str = "cpu"
) -> list[Results]:
    """Return each workload of a stage with what a folder has on record of it.

    Without a number of seeds it is of all on record.
    """
    there = read_finished(folder)
    if seeds is None:
        known = [run.header.seed - stage.first_seed for run in there.values()]
        seeds = 1 + max((seed for seed in known if 0 <= seed < _MOST), default=-1)
    found = []
    for workload in stage.workloads:
        tuning, tuned_by, rates = find_rates(workload, there, device, stage.arms)
        runs = _among(workload.plans(stage.arms, rates, stage.seeds(seeds), device), there)
        missing = len(workload.cells(stage.arms)) * seeds - len(runs) + len(tuning) - len(tuned_by)
        found.append(Results(workload, runs, tuned_by, rates, missing))
    return found


def _among(plans: Iterable[RunConfig], there: Mapping[str, Run]) -> tuple[Run, ...]:
    names = (plan.record_name for plan in plans)
    return tuple(there[name] for name in names if name in there)
