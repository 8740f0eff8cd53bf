"""What may be said of a group's runs: final errors, intervals over seeds, times to a target.

Nothing here picks a best evaluation or a best seed. A final error is the mean of the last tenth of
a run's evaluations; an interval is Student's, over seeds, at 95 %, and is NaN below three seeds:
of two, it is wide by chance or narrow by chance. No difference in error is known to less than one
test example.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

import selective_backprop as sb
from selective_backprop_lab.analysis.curves import Curve
from selective_backprop_lab.analysis.estimates import ENOUGH_SEEDS, Estimate, estimate  # noqa: F401
from selective_backprop_lab.analysis.grouping import Comparison, RunGroup
from selective_backprop_lab.records.schema import Point, Run

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
AXIS_LABELS: dict[Axis, str] = AXIS_WORDS | {
    "cost": "cost, in traditional epochs",
    "seconds": "wall seconds, evaluation left out",
    "cpu_seconds": "CPU seconds, evaluation left out",
    "trained": "backward passes, in examples",
    "candidates": "candidates: examples that came up",
}
FACTORS = (1.1, 1.2, 1.4)
_SAME = 1e-9  # of progress: two seeds' last evaluations may differ by rounding


@dataclass(frozen=True)
class SpeedUp:
    """How much sooner than traditional training a group reaches a target error."""

    target: float  # percent
    times: tuple[float, ...]  # of each seed; infinite where it never got there
    reference: float  # traditional's median; infinite where half of its seeds never got there

    @property
    def ratio(self) -> float | None:
        """The ratio of the medians over seeds; None where there is none."""
        return self._over(statistics.median(self.times)) if self.times else None

    @property
    def text(self) -> str:
        """The speed-up as a table shows it."""
        reached, seeds = sum(map(math.isfinite, self.times)), len(self.times)
        partly = f" ({reached} of {seeds})" if 0 < reached < seeds else ""
        if self.ratio is not None:
            return f"{self.ratio:.2f}×{partly}"
        if 2 * reached > seeds or not seeds:
            return "–"  # nothing to measure against: traditional never got there, or nobody ran
        return f"never{partly}"

    @property
    def with_range(self) -> str:
        """The speed-up with those of the slowest and of the fastest seed, where there are two."""
        if self.ratio is None or len(self.times) < 2:
            return self.text
        slowest, fastest = self._over(max(self.times)), self._over(min(self.times))
        low = "never" if slowest is None else f"{slowest:.2f}"
        return f"{self.ratio:.2f}× ({low} to {fastest:.2f})"

    def _over(self, time: float) -> float | None:
        possible = 0 < time < math.inf and self.reference < math.inf
        return self.reference / time if possible else None


def last_tenth(run: Run) -> Sequence[Point]:
    """Return the last tenth of a run's evaluations, at least one where there is any."""
    return run.points[-math.ceil(len(run.points) / 10) :]


def final_error(run: Run) -> float:
    """Return the mean test error, in percent, of the last tenth of the evaluations, at least one.

    Not the best one: choosing among noisy evaluations by their test error flatters, and flatters
    the strategy with the noisier curve more.

    Raises:
        RecordError: if the run has no evaluation.
    """
    return statistics.fmean(point.test_error for point in _last(run))


def final_loss(run: Run) -> float:
    """Return a hundred times the mean test loss, of the same evaluations.

    Of rare positives a net predicts none, so that its error says nothing, and the loss does.
    """
    return 100 * statistics.fmean(point.test_loss for point in _last(run))


def final_bits(run: Run) -> float:
    """Return a hundred times the bits per byte that a model of text takes, of the same evaluations.

    That is the mean test loss of a byte in units of ln 2.
    """
    return final_loss(run) / math.log(2.0)


def _last(run: Run) -> Sequence[Point]:
    if not run.points:
        raise sb.RecordError(f"{run.name} has no evaluation, so no final error.")
    return last_tenth(run)


def by_seed(group: RunGroup, measure: Callable[[Run], float] = final_error) -> pd.Series:
    """Return a number of each finished run of a group, by seed; pandas joins two such by seed."""
    return pd.Series({run.header.seed: measure(run) for run in group.runs}, dtype=float)


def training_error(run: Run) -> float:
    """Return the error on training examples at the end, in percent; NaN where it is not known."""
    return float(run.meters.get("train_error", math.nan))


def resolution(runs: Iterable[Run]) -> float:
    """Return how many points of error one test example makes; 0 where records do not say."""
    examples = (run.meters.get("test_examples") for run in runs)
    return max((100.0 / count for count in examples if count), default=0.0)


def final_estimate(group: RunGroup) -> Estimate:
    """Return a group's final error, in percent."""
    return estimate([*by_seed(group)], resolution(group.runs))


def mean_at_end(group: RunGroup, axis: Axis) -> float:
    """Return where on an axis a group's runs end, as a mean over seeds; NaN without any."""
    return estimate([at(run.points[-1], axis) for run in group.runs]).mean


def paired_difference(
    group: RunGroup, other: RunGroup, measure: Callable[[Run], float] | None = None
) -> Estimate:
    """Return how much higher a group's final error is than another's, seed by seed, in points.

    Or another measure of a run, of which one test example is not known to be the least step.
    Only seeds that both have count: they share initial weights and order of the data, so that
    their difference is less noisy than the difference of two means.
    """
    mine, theirs = (by_seed(each, measure or final_error) for each in (group, other))
    shared = mine.index.intersection(theirs.index)
    least = 0.0 if measure else resolution([*group.runs, *other.runs])
    return estimate([*(mine[shared] - theirs[shared])], least)


def time_to(run: Run, target: float, axis: Axis = "seconds") -> float | None:
    """Return where on an axis an evaluation first showed a target error, or less.

    Nothing is interpolated: the target was reached when it was seen to be. The answer is therefore
    late by up to the distance between two evaluations. None if the error never was so low.
    """
    return next((at(point, axis) for point in run.points if point.test_error <= target), None)


def speedups(
    group: RunGroup,
    baseline: RunGroup,
    *,
    factors: Sequence[float] = FACTORS,
    axis: Axis = "seconds",
) -> tuple[SpeedUp, ...]:
    """Return how much sooner a group reaches multiples of traditional's mean final error.

    The ratio is of medians over seeds, a seed that never got there counting as infinitely late: a
    group of which half the seeds or more never got there has no speed-up.
    """

    def times(runs: Sequence[Run], target: float) -> tuple[float, ...]:
        found = (time_to(run, target, axis) for run in runs)
        return tuple(math.inf if time is None else time for time in found)

    targets = [factor * final_estimate(baseline).mean for factor in factors]
    return tuple(
        SpeedUp(target, times(group.runs, target), statistics.median(times(baseline.runs, target)))
        for target in targets
    )


def mean_error(run: Run, start: float, end: float, *, axis: Axis = "cost") -> float:
    """Return the area under the error curve between two places on an axis, per unit of the axis.

    That is the mean error on the way, in percent, which is low for a strategy that learns early.
    The curve is linear between evaluations.

    Returns:
        NaN where the run has no evaluation at or before `start`, or none at or after `end`.
    """
    x = [at(point, axis) for point in run.points]
    if not x or end <= start or x[0] > start or x[-1] < end:
        return math.nan
    places = [start, *(value for value in x if start < value < end), end]
    heights = np.interp(places, x, [point.test_error for point in run.points])
    return float(np.diff(places) @ (heights[1:] + heights[:-1])) / 2 / (end - start)


def common_span(runs: Sequence[Run], axis: Axis = "cost") -> tuple[float, float]:
    """Return the part of an axis that all runs' evaluations cover; (0, 0) where there is none."""
    if not runs:
        return 0.0, 0.0
    start = max(at(run.points[0], axis) for run in runs)
    end = min(at(run.points[-1], axis) for run in runs)
    return (start, end) if end > start else (0.0, 0.0)


def curve(runs: Sequence[Run], axis: Axis) -> Curve:
    """Return the error of one group's runs along an axis, averaged over seeds at equal progress.

    Seeds are matched by progress, which is what they share: the mean error of an evaluation stands
    at the mean of where its seeds were on the axis. Seeds that were evaluated at different moments
    are interpolated, at the moments of the one with the fewest.
    """
    runs = [run for run in runs if run.points]
    if not runs:
        return Curve.over_seeds([], [])
    grid = [point.progress for point in min(runs, key=lambda run: len(run.points)).points]
    start = max(run.points[0].progress for run in runs)
    end = min(run.points[-1].progress for run in runs)
    grid = [place for place in grid if start - _SAME <= place <= end + _SAME]

    def resampled(name: str) -> list[list[float]]:
        found = []
        for run in runs:
            known = [float(getattr(point, name)) for point in run.points]
            found.append(np.interp(grid, [point.progress for point in run.points], known).tolist())
        return found

    return Curve.over_seeds(resampled(axis), resampled("test_error"))


def ranking(comparison: Comparison) -> list[RunGroup]:
    """Return the longest runs of each strategy, the lowest final error first, unfinished last."""
    longest: dict[str, RunGroup] = {}
    for group in sorted(comparison.groups, key=lambda group: not group.runs):
        longest.setdefault(group.name, group)
    errors = {name: final_estimate(group).mean for name, group in longest.items()}
    names = sorted(longest, key=lambda name: (math.isnan(errors[name]), errors[name]))
    return [longest[name] for name in names]


def leaders(comparison: Comparison, count: int) -> list[RunGroup]:
    """Return the longest runs of traditional training and of so many that end lowest, in order."""
    ranked = ranking(comparison)
    ahead = [group for group in ranked if not group.is_baseline][:count]
    chosen = {group.label for group in ranked if group.is_baseline or group in ahead}
    return [group for group in comparison.groups if group.label in chosen]


def at(point: Point, axis: Axis) -> float:
    """Return where on an axis an evaluation stands."""
    return float(getattr(point, axis))
