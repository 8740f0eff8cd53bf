"""What may be asked of evaluations: where runs end, how soon they get there, and the way between.

Each question takes evaluations of one arm at one length, as rows of `records.frame`, and answers
with one number for each seed; `estimate` makes of them what may be said. Nothing picks a best
evaluation or a best seed.
"""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

import selective_backprop as sb
from selective_backprop_lab.analysis.estimates import Estimate, estimate

BASELINE = "traditional"
BY_SEED = "seed"
_SAME_COST = 0.03


def counted(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return the evaluations that enter statistics, which are of finished runs."""
    return evaluations[evaluations.finished.astype(bool) & (evaluations.evaluations > 0)]


def last_tenth(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the last tenth of each run's evaluations, at least one."""
    return runs[runs.evaluation >= runs.evaluations - np.ceil(runs.evaluations / 10)]


def final(runs: pd.DataFrame, column: str = "error") -> pd.Series:
    """Return the mean of a column over the last tenth of the evaluations, by seed.

    Not the best evaluation: choosing among noisy ones by their test error flatters, and flatters
    the strategy with the noisier curve more.

    Raises:
        RecordError: if a run has no evaluation.
    """
    if (empty := runs[runs.evaluations == 0]).size:
        raise sb.RecordError(f"{empty.run.iloc[0]} has no evaluation, so no final {column}.")
    # By NumPy: pandas would leave out the evaluations that show that a run diverged.
    ends = last_tenth(runs)[[BY_SEED, column]]
    return by_seed(ends, lambda own: own[column].to_numpy(float).mean())


def by_seed(runs: pd.DataFrame, measure: Callable[[pd.DataFrame], float]) -> pd.Series:
    """Return a number of each run's evaluations, by seed."""
    found = {seed: measure(own) for seed, own in runs.groupby(BY_SEED)}
    return pd.Series(found, dtype=float).rename_axis(BY_SEED)


def at_end(runs: pd.DataFrame, column: str) -> pd.Series:
    """Return what a column holds at the last evaluation, by seed."""
    return runs.drop_duplicates(BY_SEED, keep="last").set_index(BY_SEED)[column]


def metered(runs: pd.DataFrame, name: str) -> pd.Series:
    """Return what was counted over whole runs, by seed; NaN where it was not."""
    of_runs = runs.drop_duplicates(BY_SEED).set_index(BY_SEED).meters
    return of_runs.map(lambda meters: meters.get(name, math.nan)).astype(float)


def reached(runs: pd.DataFrame, target: float, axis: str = "seconds") -> pd.Series:
    """Return where on an axis an evaluation first showed an error or less, by seed.

    Nothing is interpolated: the answer is late by up to the distance between two evaluations.
    Infinite for a seed that never got there.
    """
    found = runs[runs.error <= target].groupby(BY_SEED)[axis].first()
    return found.reindex(runs[BY_SEED].unique(), fill_value=math.inf)


def span(*groups: pd.DataFrame, axis: str = "cost") -> tuple[float, float]:
    """Return the part of an axis that all runs' evaluations cover; (0, 0) if there is none."""
    ends = [group.groupby(BY_SEED)[axis].agg(["first", "last"]) for group in groups]
    both = pd.concat(ends)
    if both.empty or both["first"].max() >= both["last"].min():
        return 0.0, 0.0
    return float(both["first"].max()), float(both["last"].min())


def mean_error(runs: pd.DataFrame, start: float, end: float, *, axis: str = "cost") -> pd.Series:
    """Return the area under the error curve between two places on an axis, per unit, by seed.

    It is low for a strategy that learns early. The curve is linear between evaluations. NaN where
    a run has no evaluation at or before `start`, or none at or after `end`.
    """

    def of_seed(run: pd.DataFrame) -> float:
        x, y = run[axis].to_numpy(float), run.error.to_numpy(float)
        if not len(x) or end <= start or x[0] > start or x[-1] < end:
            return math.nan
        places = np.concatenate([[start], x[(start < x) & (x < end)], [end]])
        heights = np.interp(places, x, y)
        return float(np.diff(places) @ (heights[1:] + heights[:-1])) / 2 / (end - start)

    return by_seed(runs, of_seed)


def difference(one: pd.Series, other: pd.Series) -> pd.Series:
    """Return how much higher one is than another, over the seeds that both have.

    Seeds share initial weights and the order of the data, so that the difference is less noisy
    than the difference of two means.
    """
    shared = one.index.intersection(other.index)
    return one[shared] - other[shared]  # NaN where a run diverged, which leaves no interval


def resolution(*groups: pd.DataFrame) -> float:
    """Return how many points of error one test example makes; 0 where records do not say."""
    examples = (meters.get("test_examples") for each in groups for meters in each.meters)
    return max((100.0 / count for count in examples if count), default=0.0)


def final_error(runs: pd.DataFrame) -> Estimate:
    """Return the final error over seeds, known to no less than one test example."""
    return estimate([*final(runs)], resolution(runs))


def final_difference(one: pd.DataFrame, other: pd.DataFrame, column: str = "error") -> Estimate:
    """Return how much higher one ends than another, seed by seed: of errors, in points."""
    least = resolution(one, other) if column == "error" else 0.0
    return estimate([*difference(final(one, column), final(other, column))], least)


def best_traditional(evaluations: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the traditional training that ended lowest of those that cost no more than some runs.

    What an arm *gains* is its final error less that of this rival. Stopping earlier costs nothing,
    so a longer traditional training that got worse is none. Costs that are equal by `cost_as_much`
    count as no more.

    Returns:
        Its finished runs at one length; no rows where none cost so little, or all diverged.
    """
    known = counted(evaluations)
    traditional = known[known.arm == BASELINE]
    own = cost_of(runs)
    found = [
        other
        for _, other in traditional.groupby(["unit", "length"])
        if cost_of(other) <= own or cost_as_much(runs, other)
    ]
    ends = [final(other).mean(skipna=False) for other in found]
    ranked = [(end, i) for i, end in enumerate(ends) if math.isfinite(end)]
    return found[min(ranked)[1]] if ranked else traditional[:0]


def passes_to(evaluations: pd.DataFrame, error: float, column: str = "error") -> float | None:
    """Return how many passes traditional training takes to end, in the mean, at an error or lower.

    Between the lengths that were run the mean final error is interpolated, linearly along the
    logarithm of the length.

    Args:
        evaluations: of one comparison; finished runs of traditional training count.
        error: to be reached, in the unit of the column.
        column: what is compared; the lower, the better.

    Returns:
        The least cost in passes, the shortest length's if that ends low enough; None if no length
        does.
    """
    known = counted(evaluations)
    lengths = known[known.arm == BASELINE].groupby(["unit", "length"])
    ends = sorted((cost_of(own), final(own, column).mean(skipna=False)) for _, own in lengths)
    ends = [(cost, mean) for cost, mean in ends if math.isfinite(mean)]
    for number, (cost, mean) in enumerate(ends):
        if mean <= error:
            before, above = ends[max(0, number - 1)]
            share = (above - error) / (above - mean) if number else 1.0
            return before * (cost / before) ** share
    return None


def cost_of(runs: pd.DataFrame) -> float:
    """Return what runs cost in passes of traditional training, as a mean over seeds."""
    return float(at_end(runs, "cost").mean())


def cost_as_much(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether two arms cost the same up to 3 %: the last batches of two runs differ.

    The same budget of seconds is the same cost, whatever was made of it.
    """
    lengths = {*zip([*one.length, *other.length], [*one.unit, *other.unit], strict=True)}
    if len(lengths) == 1 and lengths.pop()[1] == "seconds":
        return True
    return abs(cost_of(one) / cost_of(other) - 1.0) <= _SAME_COST
