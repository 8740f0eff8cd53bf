"""What may be said of an arm's runs: final errors, intervals over seeds, times to a target.

Nothing here picks a best evaluation or a best seed. A final error is the mean of the last tenth of
a run's evaluations; an interval is Student's, over seeds, at 95 %, and is NaN for a single seed,
since one run says nothing about spread.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy.special import stdtrit

import selective_backprop as sb
from selective_backprop.lab.analysis.grouping import Arm, Comparison
from selective_backprop.lab.records.schema import Point, Run

Axis = Literal[
    "cost",
    "seconds",
    "cpu_seconds",
    "trained",
    "scored",
    "forwards",
    "updates",
    "candidates",
    "epoch",
]
AXIS_WORDS: dict[Axis, str] = {
    "cost": "cost",
    "seconds": "wall seconds",
    "cpu_seconds": "CPU seconds",
    "trained": "examples trained",
    "scored": "examples scored",
    "forwards": "forward passes, in examples",
    "updates": "updates",
    "candidates": "candidates",
    "epoch": "epochs",
}
FACTORS = (1.1, 1.2, 1.4)
_CONFIDENCE = 0.95
_SAME = 1e-9  # of progress: two seeds' last evaluations may differ by rounding


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its 95 % interval."""

    mean: float
    half_width: float  # NaN where fewer than two seeds leave the spread unknown
    seeds: int

    @property
    def low(self) -> float:
        """The interval's lower end."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The interval's upper end."""
        return self.mean + self.half_width


@dataclass(frozen=True)
class SpeedUp:
    """How much sooner than traditional training an arm reaches a target error."""

    factor: float  # the target, as a multiple of traditional's final error
    target: float  # percent
    ratio: float | None  # of the medians over seeds; None where there is none
    low: float | None  # of the arm's slowest seed; None where that never got there
    high: float | None  # of the arm's fastest seed, against traditional's median like the others
    reached: int  # seeds that got there
    seeds: int

    @property
    def got_there(self) -> bool:
        """Whether more than half of the arm's seeds did."""
        return 2 * self.reached > self.seeds

    @property
    def text(self) -> str:
        """The speed-up as a table shows it."""
        partly = f" ({self.reached} of {self.seeds})" if 0 < self.reached < self.seeds else ""
        if self.ratio is not None:
            return f"{self.ratio:.2f}×{partly}"
        if self.got_there or not self.seeds:
            return "–"  # nothing to measure against: traditional never got there, or nobody ran
        return f"never{partly}"


@dataclass(frozen=True)
class Curve:
    """An arm's error along an axis: mean over seeds, with the interval at each evaluation."""

    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]  # NaN where fewer than two seeds leave the spread unknown
    high: tuple[float, ...]


@dataclass(frozen=True)
class BudgetLine:
    """A strategy's final error at each of its lengths, the cheapest first."""

    name: str
    costs: tuple[float, ...]
    errors: tuple[Estimate, ...]

    @property
    def reach(self) -> tuple[float, ...]:
        """Every error that its means and intervals reach, nothing below zero."""
        ends = [end for error in self.errors for end in (error.low, error.mean, error.high)]
        return tuple(max(0.0, end) for end in ends if math.isfinite(end))


def final_error(run: Run) -> float:
    """Return the mean test error, in percent, of the last tenth of the evaluations, at least one.

    Not the best one: choosing among noisy evaluations by their test error flatters, and flatters
    the arm with the noisier curve more.

    Raises:
        RecordError: if the run has no evaluation.
    """
    if not run.points:
        raise sb.RecordError(f"{run.name} has no evaluation, so no final error.")
    last = run.points[-math.ceil(len(run.points) / 10) :]
    return statistics.fmean(point.test_error for point in last)


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of one value per seed, with Student's 95 % interval.

    Returns:
        NaN for the half width of a single value, and for both of none.
    """
    n = len(values)
    if n == 0:
        return Estimate(math.nan, math.nan, 0)
    mean = statistics.fmean(values)
    if n == 1:
        return Estimate(mean, math.nan, 1)
    if not all(map(math.isfinite, values)):
        return Estimate(mean, math.nan, n)
    error = statistics.stdev(values) / math.sqrt(n)
    return Estimate(mean, float(stdtrit(n - 1, (1 + _CONFIDENCE) / 2)) * error, n)


def paired_difference(arm: Arm, other: Arm) -> Estimate:
    """Return how much higher an arm's final error is than another's, seed by seed, in points.

    Only seeds that both have count: they share initial weights and order of the data, so that
    their difference is less noisy than the difference of two means.
    """
    theirs = {run.header.seed: final_error(run) for run in other.runs}
    return estimate(
        [
            final_error(run) - theirs[run.header.seed]
            for run in arm.runs
            if run.header.seed in theirs
        ]
    )


def time_to(run: Run, target: float, axis: Axis = "seconds") -> float | None:
    """Return where on an axis an evaluation first showed a target error, or less.

    Nothing is interpolated: the target was reached when it was seen to be. The answer is therefore
    late by up to the distance between two evaluations, for every arm alike.

    Returns:
        The axis' value at that evaluation; None if the error never was so low.
    """
    for point in run.points:
        if point.test_error <= target:
            return at(point, axis)
    return None


def speedups(
    arm: Arm,
    baseline: Arm,
    *,
    factors: Sequence[float] = FACTORS,
    axis: Axis = "seconds",
) -> tuple[SpeedUp, ...]:
    """Return how much sooner an arm reaches multiples of traditional's mean final error.

    The ratio is of medians over seeds, a seed that never got there counting as infinitely late: an
    arm of which half the seeds or more never got there has no speed-up.

    Args:
        arm: what is timed.
        baseline: traditional training, which sets the targets; to itself its speed-up is 1.
        factors: the targets, as multiples of the baseline's mean final error.
        axis: what time is measured in.
    """
    final = statistics.fmean(final_error(run) for run in baseline.runs)
    return tuple(_speedup(arm, baseline, factor, factor * final, axis) for factor in factors)


def mean_error(run: Run, start: float, end: float, *, axis: Axis = "cost") -> float:
    """Return the area under the error curve between two places on an axis, per unit of the axis.

    That is the mean error on the way, in percent, which is low for an arm that learns early. The
    curve is linear between evaluations.

    Returns:
        NaN where the run has no evaluation at or before `start`, or none at or after `end`.
    """
    x = [at(point, axis) for point in run.points]
    if not x or end <= start or x[0] > start or x[-1] < end:
        return math.nan
    y = [point.test_error for point in run.points]
    places = [start, *(value for value in x if start < value < end), end]
    heights = np.interp(places, x, y).tolist()
    area = sum(
        (right - left) * (one + other) / 2
        for (left, right), (one, other) in zip(pairwise(places), pairwise(heights), strict=True)
    )
    return area / (end - start)


def common_span(runs: Sequence[Run], axis: Axis = "cost") -> tuple[float, float]:
    """Return the part of an axis that all runs' evaluations cover; (0, 0) where there is none."""
    if not runs:
        return 0.0, 0.0
    start = max(at(run.points[0], axis) for run in runs)
    end = min(at(run.points[-1], axis) for run in runs)
    return (start, end) if end > start else (0.0, 0.0)


def curve(runs: Sequence[Run], axis: Axis) -> Curve:
    """Return the error of one arm's runs along an axis, averaged over seeds at equal progress.

    Seeds are matched by progress, which is what they share: the mean error of an evaluation stands
    at the mean of where its seeds were on the axis. Seeds that were evaluated at different moments
    are interpolated, at the moments of the one with the fewest.
    """
    runs = [run for run in runs if run.points]
    if not runs:
        return Curve((), (), (), ())
    grid = [point.progress for point in min(runs, key=lambda run: len(run.points)).points]
    start = max(run.points[0].progress for run in runs)
    end = min(run.points[-1].progress for run in runs)
    grid = [place for place in grid if start - _SAME <= place <= end + _SAME]
    places = [_resample(run, grid, [at(point, axis) for point in run.points]) for run in runs]
    errors = [_resample(run, grid, [point.test_error for point in run.points]) for run in runs]
    columns = [estimate(column) for column in np.transpose(errors).tolist()]
    return Curve(
        x=tuple(np.mean(places, axis=0).tolist()),
        mean=tuple(column.mean for column in columns),
        low=tuple(column.low for column in columns),
        high=tuple(column.high for column in columns),
    )


def budget_lines(arms: Sequence[Arm]) -> list[BudgetLine]:
    """Return the final errors of each strategy over its lengths, strategies in order of arms."""
    lines = []
    for name in dict.fromkeys(arm.name for arm in arms if arm.runs):
        own = sorted((a for a in arms if a.name == name and a.runs), key=lambda arm: arm.cost)
        errors = (estimate([final_error(run) for run in arm.runs]) for arm in own)
        lines.append(BudgetLine(name, tuple(arm.cost for arm in own), tuple(errors)))
    return lines


def ranking(comparison: Comparison) -> list[Arm]:
    """Return the longest runs of each strategy, the lowest final error first, unfinished last."""
    longest: dict[str, Arm] = {}
    for arm in sorted(comparison.arms, key=lambda arm: not arm.runs):
        longest.setdefault(arm.name, arm)

    def place(arm: Arm) -> tuple[bool, float]:
        errors = [final_error(run) for run in arm.runs]
        error = estimate(errors).mean if errors else math.nan
        return math.isnan(error), 0.0 if math.isnan(error) else error

    return sorted(longest.values(), key=place)


def leaders(comparison: Comparison, count: int) -> list[Arm]:
    """Return traditional training and the strategies that end lowest, each with its longest runs.

    Args:
        comparison: of any number of strategies and lengths.
        count: of strategies besides traditional.

    Returns:
        Arms in the order of the comparison.
    """
    ranked = ranking(comparison)
    ahead = [arm for arm in ranked if not arm.is_baseline][:count]
    chosen = {arm.label for arm in ranked if arm.is_baseline or arm in ahead}
    return [arm for arm in comparison.arms if arm.label in chosen]


def phase_seconds(runs: Sequence[Run]) -> dict[str, float]:
    """Return the seconds that each phase took of a whole run, as a mean over runs."""
    totals = [run.points[-1].phases for run in runs if run.points]
    return {
        phase: statistics.fmean(total.get(phase, 0.0) for total in totals)
        for phase in dict.fromkeys(phase for total in totals for phase in total)
    }


def at(point: Point, axis: Axis) -> float:
    """Return where on an axis an evaluation stands."""
    return float(getattr(point, axis))


def _speedup(arm: Arm, baseline: Arm, factor: float, target: float, axis: Axis) -> SpeedUp:
    times, theirs = (
        [math.inf if time is None else time for time in (time_to(r, target, axis) for r in runs)]
        for runs in (arm.runs, baseline.runs)
    )
    reference = statistics.median(theirs) if theirs else math.inf

    def against(time: float) -> float | None:
        return reference / time if 0 < time < math.inf and reference < math.inf else None

    return SpeedUp(
        factor=factor,
        target=target,
        ratio=against(statistics.median(times)) if times else None,
        low=against(max(times)) if times else None,
        high=against(min(times)) if times else None,
        reached=sum(time < math.inf for time in times),
        seeds=len(times),
    )


def _resample(run: Run, grid: Sequence[float], values: Sequence[float]) -> list[float]:
    return np.interp(grid, [point.progress for point in run.points], values).tolist()
