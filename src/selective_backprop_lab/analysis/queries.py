"""Questions to evaluations: where runs end, how soon they get there, and how they get there.

Each question takes the evaluations of one arm at one length, as rows of `records.frame`, and
returns one number for each seed. Nothing picks a best evaluation or a best seed.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

import selective_backprop as sb
from selective_backprop_lab.analysis.estimates import BY_SEED, Estimate, estimate

BASELINE = "traditional"
_SAME_COST, _SAME_BUDGET, _SAME_PLACE = 0.03, 0.1, 0.25
_RAREST = 3  # classes


def counted(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return the evaluations that enter statistics: those of finished runs."""
    return evaluations[evaluations.finished.astype(bool) & (evaluations.evaluations > 0)]


def last_tenth(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the last tenth of each run's evaluations, at least one."""
    return runs[runs.evaluation >= runs.evaluations - np.ceil(runs.evaluations / 10)]


def final(runs: pd.DataFrame, column: str = "error") -> pd.Series:
    """Return the mean of a column over the last tenth of the evaluations, by seed."""
    if (empty := runs[runs.evaluations == 0]).size:
        raise sb.RecordError(f"{empty.run.iloc[0]} has no evaluation, so no final {column}.")
    ends = last_tenth(runs[[*{BY_SEED, "evaluation", "evaluations", column}]])
    # NumPy's mean keeps the NaN that shows that a run diverged; pandas would leave it out.
    values = ends[column].to_numpy(float)
    rows = ends.groupby(BY_SEED).indices
    return _by_seed({seed: values[own].mean() for seed, own in rows.items()})


def _by_seed(found: Mapping[Any, float]) -> pd.Series:
    return pd.Series(found, dtype=float).rename_axis(BY_SEED).sort_index()


def last(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the last evaluation of each seed."""
    return runs[~runs[BY_SEED].duplicated(keep="last")].set_index(BY_SEED)


def metered(runs: pd.DataFrame, name: str) -> pd.Series:
    """Return a count over whole runs, by seed; NaN if it was not recorded."""
    of_runs = runs.drop_duplicates(BY_SEED).set_index(BY_SEED).meters
    return of_runs.map(lambda meters: meters.get(name, math.nan)).astype(float)


def reached(runs: pd.DataFrame, target: float, axis: str = "seconds") -> pd.Series:
    """Return where an evaluation first had at most the target error, by seed, or infinity."""
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
    """Return the mean of the error curve between two places on an axis, by seed, or NaN."""

    def of_seed(run: pd.DataFrame) -> float:
        x, y = run[axis].to_numpy(float), run.error.to_numpy(float)
        if not len(x) or end <= start or x[0] > start or x[-1] < end:
            return math.nan
        places = np.concatenate([[start], x[(start < x) & (x < end)], [end]])
        heights = np.interp(places, x, y)
        return float(np.diff(places) @ (heights[1:] + heights[:-1])) / 2 / (end - start)

    return _by_seed({seed: of_seed(own) for seed, own in runs.groupby(BY_SEED)})


def difference(one: pd.Series, other: pd.Series) -> pd.Series:
    """Return by how much one exceeds another, for each seed that both have."""
    shared = one.index.intersection(other.index)
    return one[shared] - other[shared]  # NaN if a run diverged; then there is no interval


def resolution(*groups: pd.DataFrame) -> float:
    """Return the error, in percentage points, of one wrong test example; 0 if not recorded."""
    examples = (meters.get("test_examples") for each in groups for meters in each.meters)
    return max((100.0 / count for count in examples if count), default=0.0)


def final_error(runs: pd.DataFrame) -> Estimate:
    """Return the final error over seeds; its interval is at least one test example wide."""
    return estimate([*final(runs)], resolution(runs))


def final_difference(one: pd.DataFrame, other: pd.DataFrame, column: str = "error") -> Estimate:
    """Return by how much one ends higher than another, seed by seed; for errors, in points."""
    least = resolution(one, other) if column == "error" else 0.0
    return estimate([*difference(final(one, column), final(other, column))], least)


def best_traditional(plain: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the best traditional training that cost no more than some runs: an arm's rival.

    It may be shorter than the arm, because anyone can stop earlier. The best is chosen on shared
    seeds, of the lengths that share the most. There are no rows if all cost more or diverged.
    """
    traditional, own = counted(plain), cost_of(runs)
    found = [
        other
        for _, other in traditional.groupby(["unit", "length"])
        if cost_of(other) <= own or cost_as_much(runs, other)
    ]
    ranked = []
    for i, other in enumerate(found):
        ends = final(other)
        shared = ends[ends.index.isin(runs[BY_SEED])]
        # Without a shared seed there is a rival too, which shows what is missing.
        end = (ends if shared.empty else shared).mean(skipna=False)
        if math.isfinite(end):
            ranked.append((-len(shared), end, i))
    return found[min(ranked)[-1]] if ranked else traditional[:0]


def lowest_before(plain: pd.DataFrame, runs: pd.DataFrame) -> tuple[float, float]:
    """Return the lowest error of traditional training on its way up to some runs' cost, and where.

    The error is the mean of one evaluation over the seeds that both have. Evaluations at about the
    cost of a whole run are left out, because the run's end says more. (inf, 0) if none is left.
    """
    curves = plain[plain[BY_SEED].isin(runs[BY_SEED])]
    by_length = curves.groupby(["unit", "length"])
    tried, found = [cost_of(own) for _, own in by_length], [(math.inf, 0.0)]
    for _, own in curves.groupby(["unit", "length", "evaluation"]):
        cost = float(own.cost.mean())
        whole = len(own) == curves[BY_SEED].nunique()  # one lucky seed is no curve
        near = any(abs(cost / each - 1.0) <= _SAME_PLACE for each in tried)
        if whole and not near and cost < cost_of(runs) and own.error.notna().all():
            found.append((float(own.error.mean()), cost))
    return min(found)


def passes_to(evaluations: pd.DataFrame, error: float, column: str = "error") -> float | None:
    """Return how many passes traditional training takes to end, on average, at an error or lower.

    Between lengths, the mean is interpolated linearly in the logarithm of the length. The answer is
    at least the cost of the shortest length, or None if no length ends low enough.
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
    """Return the cost of runs in passes of traditional training, as a mean over seeds."""
    return float(last(runs).cost.mean())


def cost_as_much(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether the costs of two arms differ by at most 3 %, or 10 % if their budgets are equal.

    Runs end only after a whole batch, which exceeds a budget for few examples by more. Arms with
    the same budget in seconds cost the same if seconds compare.
    """
    lengths = {*zip([*one.length, *other.length], [*one.unit, *other.unit], strict=True)}
    unit = lengths.pop()[1] if len(lengths) == 1 else None
    if unit == "seconds" and one.seconds.notna().all() and other.seconds.notna().all():
        return True
    most = _SAME_BUDGET if unit == "cost" else _SAME_COST
    return abs(cost_of(one) / cost_of(other) - 1.0) <= most


def is_skewed(evaluations: pd.DataFrame) -> bool:
    """Whether the classes of a run's training data were made unequal on purpose."""
    made = ("composition.skew", "composition.frequent")
    return any(config.get(name) for config in evaluations.config for name in made)


def is_binary(evaluations: pd.DataFrame) -> bool:
    """Whether a run's data have two classes."""
    return bool(evaluations.ranking.notna().any())


def error_as_it_comes(runs: pd.DataFrame) -> pd.Series:
    """Return what the error, in percent, would be with the training data's shares of classes."""
    return _by_class(runs, _mean)


def _mean(errors: np.ndarray, weights: np.ndarray | None) -> float:
    known = np.isfinite(errors) if weights is None else np.isfinite(errors) & (weights > 0)
    weights = None if weights is None else weights[known]
    return float(np.average(errors[known], weights=weights)) if known.any() else math.nan


def macro_recall(runs: pd.DataFrame) -> pd.Series:
    """Return the recall in percent (the share that is recognised), as a mean over classes."""
    return 100.0 - _by_class(runs, lambda errors, shares: _mean(errors, None))


def rare_recall(runs: pd.DataFrame) -> pd.Series:
    """Return the mean recall, in percent, of the three classes that are rarest in training."""
    return _by_class(
        runs, lambda errors, shares: 100 - errors[shares.argsort(kind="stable")[:_RAREST]].mean()
    )


def area_under_curve(runs: pd.DataFrame) -> pd.Series:
    """Return how often, in percent, the second class's examples rank above the first's."""
    return 100.0 * last_tenth(runs).groupby(BY_SEED).ranking.mean()


def _by_class(runs: pd.DataFrame, measure: Callable[[np.ndarray, np.ndarray], float]) -> pd.Series:
    def of_seed(own: pd.DataFrame) -> float:
        shares = np.asarray(own.meters.iloc[0].get("class_shares", [math.nan]))
        known = [errors for errors in own.class_errors if isinstance(errors, tuple)]
        errors = np.mean(known, axis=0) if known else np.full(len(shares), math.nan)
        return measure(errors, shares)

    return _by_seed({seed: of_seed(own) for seed, own in last_tenth(runs).groupby(BY_SEED)})


# The measures that a table shows if classes are skewed, and if there are two, by their headings.
CLASS_MEASURES: Mapping[str, Callable[[pd.DataFrame], pd.Series]] = {
    "as it\ncomes %": error_as_it_comes,
    "macro-\nrecall %": macro_recall,
    "rarest\nthree %": rare_recall,
}
BINARY_MEASURES: Mapping[str, Callable[[pd.DataFrame], pd.Series]] = {
    "log-loss\n× 100": lambda runs: 100.0 * final(runs, "test_loss"),
    "area under\ncurve %": area_under_curve,
}
