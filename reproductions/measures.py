"""What is measured of one arm or of two, beside `analysis.queries`: numbers by seed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.estimates import Estimate, estimate


def over_seeds(values: pd.Series) -> Estimate:
    """Return the mean of one number per seed, with its interval."""
    return estimate([*values])


def paired(difference: pd.Series) -> Estimate:
    """Return the mean of a difference between two arms over the seeds that both have."""
    return estimate([*difference[np.isfinite(difference)]])


def final_difference(mine: pd.DataFrame, theirs: pd.DataFrame) -> Estimate:
    """Return how much higher an arm ends than another, seed by seed."""
    return paired(queries.final(mine) - queries.final(theirs))


def on_the_way(
    mine: pd.DataFrame, theirs: pd.DataFrame, axis: str, column: str = "error"
) -> tuple[pd.Series, pd.Series]:
    """Return the errors of two arms by seed, in the mean over the part of an axis both cover."""
    found = {}
    for seed in sorted(set(mine.seed) & set(theirs.seed)):
        pair = [each[each.seed == seed].assign(error=each[column]) for each in (mine, theirs)]
        ends = queries.span(*pair, axis=axis)
        found[seed] = [queries.mean_error(each, *ends, axis=axis).iloc[0] for each in pair]
    both = pd.DataFrame.from_dict(found, orient="index", columns=[0, 1], dtype=float)
    return both[0], both[1]


def earlier(mine: pd.DataFrame, theirs: pd.DataFrame, axis: str, column: str = "error") -> Estimate:
    """Return how far an arm's error lies above another's, in the mean over what both cover."""
    one, other = on_the_way(mine, theirs, axis, column)
    return paired(one - other)


def clock(runs: pd.DataFrame) -> str:
    """Return the axis that stands for the papers' seconds.

    Runs on a CPU share its cores with whatever else the machine does, and wall seconds tell that
    too; a process's own CPU time hardly does. Runs on a GPU are timed by the wall.
    """
    return "cpu_seconds" if (runs.device == "cpu").any() else "seconds"


def together(runs: pd.DataFrame) -> bool:
    """Return whether the seconds of runs compare.

    They are of one machine and code, begun within a day, and none had to share a GPU with another.
    """
    if runs.machine.nunique() > 1 or runs.code.nunique() > 1 or untimed(runs):
        return False
    begun = pd.to_datetime(runs.started.drop_duplicates())
    return not len(begun) or begun.max() - begun.min() < pd.Timedelta(days=1)


def untimed(runs: pd.DataFrame) -> bool:
    """Return whether seconds of some runs say nothing.

    These changed machines, or were on a GPU at once, where each waits for the others.
    """
    if runs.seconds.isna().any():
        return True
    on_gpu = runs[runs.device != "cpu"]
    spans = on_gpu.reset_index(drop=True).groupby(["started", "folder", "run"]).seconds.max()
    spans = spans.reset_index()
    begun = pd.to_datetime(spans.started)
    over = (begun + pd.to_timedelta(spans.seconds, unit="s")).cummax()
    return bool((begun[1:] < over.shift()[1:]).any())


def timed(axes: Sequence[str], runs: pd.DataFrame) -> tuple[str, ...]:
    """Return axes with the runs' own clock in the place of wall seconds.

    Where seconds do not compare, cost takes their place.
    """
    seconds = clock(runs) if together(runs) else "cost"
    return tuple(dict.fromkeys(seconds if axis == "seconds" else axis for axis in axes))


def last(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the last evaluation of each seed."""
    return runs.drop_duplicates("seed", keep="last").set_index("seed")


def at_target(runs: pd.DataFrame, target: float) -> pd.DataFrame:
    """Return the first evaluation of each seed that showed an error or less."""
    return runs[runs.error <= target].drop_duplicates("seed").set_index("seed")


def phase_seconds(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of each phase up to evaluations, on the runs' clock, and of overhead.

    Phases are metered in wall seconds; CPU seconds are split in their proportion.
    """
    spent = pd.DataFrame([*evaluations.phases], index=evaluations.index, dtype=float).fillna(0.0)
    spent["overhead"] = evaluations.overhead.fillna(0.0)
    spent = spent.where(evaluations.seconds.notna(), axis=0)
    if clock(evaluations) == "seconds":
        return spent
    share = evaluations.cpu_seconds / evaluations.seconds
    return spent.mul(share.where(evaluations.seconds > 0, 1.0), axis=0)


def log_ratios(mine: pd.DataFrame, theirs: pd.DataFrame, target: float, axis: str) -> pd.Series:
    """Return the logarithm of how many times sooner an arm shows an error, by seed.

    Minus infinity where it never does; seeds with which the other never does are left out.
    """
    one, other = (queries.reached(each, target, axis) for each in (mine, theirs))
    return (np.log(other[np.isfinite(other)]) - np.log(one)).dropna()
