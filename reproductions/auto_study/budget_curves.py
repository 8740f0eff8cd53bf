"""Error against cost of whole runs: one line for each strategy, seed by seed."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from reproductions.auto_study.protocol import OURS
from selective_backprop.lab.analysis.grouping import BASELINE, counts
from selective_backprop.lab.analysis.statistics import Curve, Estimate, estimate, final_error
from selective_backprop.lab.records.schema import Run

Errors = Mapping[int, float]
"""Final errors by seed, in percent."""


@dataclass(frozen=True)
class BudgetCurves:
    """Final errors of strategies at several costs, on one benchmark."""

    budgets: tuple[float, ...]  # that all were run at, in passes of traditional training, rising
    errors: Mapping[tuple[str, float], Errors]  # by strategy and budget

    @property
    def arms(self) -> list[str]:
        """The strategies that have a run at each budget."""
        names = dict.fromkeys(arm for arm, _ in self.errors)
        return [arm for arm in names if all(self.errors.get((arm, b)) for b in self.budgets)]

    def curve(self, arm: str) -> Curve:
        """Return a strategy's errors over the budgets, of the seeds that have all of them."""
        rows = [[self.errors[arm, b][seed] for b in self.budgets] for seed in self._seeds(arm)]
        return Curve.over_seeds([self.budgets] * len(rows), rows)

    def mean(self, arm: str, budget: float) -> Estimate:
        """Return a strategy's error at a budget."""
        return estimate([*self.errors.get((arm, budget), {}).values()])

    def best_rival(self, budget: float) -> str:
        """Return which of the others ends lowest at a budget, in the mean over seeds.

        That it is chosen by the errors that it is then held against favours it.
        """
        rivals = [arm for arm in self.arms if arm != OURS]
        return min(rivals, key=lambda arm: self.mean(arm, budget).mean)

    def difference(
        self, arm: str, budget: float, other: str, other_budget: float | None = None
    ) -> Estimate:
        """Return how much higher a strategy ends than another, in points, seed by seed."""
        theirs = self.errors.get((other, budget if other_budget is None else other_budget), {})
        mine = self.errors.get((arm, budget), {})
        return estimate([mine[seed] - theirs[seed] for seed in mine if seed in theirs])

    def area_difference(self, arm: str, other: str) -> Estimate:
        """Return how much higher a strategy's mean error over the logarithm of cost is."""
        places = [math.log(budget) for budget in self.budgets]

        def area(arm: str, seed: int) -> float:
            heights = [self.errors[arm, budget][seed] for budget in self.budgets]
            return float(np.trapezoid(heights, places)) / (places[-1] - places[0])

        return estimate([area(arm, seed) - area(other, seed) for seed in self._seeds(arm, other)])

    def sooner(self, arm: str, target: float, by: str = BASELINE) -> Estimate:
        """Return the logarithm of how many times sooner a strategy ends at an error than another.

        Sooner means: by runs that cost less, in all. Between budgets the error's logarithm is
        drawn as straight over that of cost. A strategy that is there at the lowest budget counts
        as there at no lower cost.

        Returns:
            The interval is a jackknife's, over seeds. Infinite where the strategy does not get
            there, NaN where the other does not.
        """

        def ratio(kept: Sequence[int]) -> float:
            mine, theirs = (self._reach(name, target, kept) for name in (arm, by))
            return math.log(theirs) - math.log(mine) if theirs < math.inf else math.nan

        return _jackknife(ratio, self._seeds(arm, by))

    def full_over(self, arm: str, target: float) -> Estimate:
        """Return the same against the cost of the longest runs, whoever might be there sooner."""
        full = math.log(self.budgets[-1])
        return _jackknife(
            lambda kept: full - math.log(self._reach(arm, target, kept)), self._seeds(arm)
        )

    def _seeds(self, *arms: str) -> list[int]:
        """Return the seeds that some strategies have at each budget."""
        sets = [set(self.errors.get((arm, b), {})) for arm in arms for b in self.budgets]
        return sorted(set.intersection(*sets))

    def _reach(self, arm: str, target: float, seeds: Sequence[int]) -> float:
        """Return the lowest cost at which the mean over seeds is at a target, or infinity."""
        means = [
            float(np.mean([self.errors[arm, budget][seed] for seed in seeds]))
            for budget in self.budgets
        ]
        if means[0] <= target:
            return self.budgets[0]
        both = zip(pairwise(self.budgets), pairwise(means), strict=True)
        for (low, high), (before, after) in both:
            if after <= target:
                if after <= 0.0:
                    return high
                share = math.log(before / target) / math.log(before / after)
                return low * (high / low) ** share
        return math.inf


def budget_curves(runs: Iterable[Run], budgets: Sequence[float]) -> BudgetCurves:
    """Return the errors of finished runs of one benchmark."""
    found: dict[tuple[str, float], dict[int, float]] = {}
    for run in runs:
        if counts(run):
            key = run.header.arm, float(run.header.config["budget"])
            found.setdefault(key, {})[run.header.seed] = final_error(run)
    return BudgetCurves(tuple(sorted(budgets)), found)


def _jackknife(value: Callable[[Sequence[int]], float], seeds: Sequence[int]) -> Estimate:
    """Return a function of all seeds, with the interval of its pseudo-values."""
    if not seeds:
        return Estimate(math.nan, math.nan, 0)
    whole, n = value(seeds), len(seeds)
    if n == 1 or not math.isfinite(whole):
        return Estimate(whole, math.nan, n)
    parts = [value([seed for seed in seeds if seed != left]) for left in seeds]
    spread = estimate([n * whole - (n - 1) * part for part in parts])
    return Estimate(whole, spread.half_width, n)
