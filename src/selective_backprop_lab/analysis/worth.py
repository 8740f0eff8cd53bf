"""What a strategy is worth: how many times more traditional training reaches the same error.

`T(e)` is the least cost at which traditional training ends at an error `e`, in the mean over seeds:
read off its curve over lengths, on which the error's logarithm is straight over that of cost. A
group whose cost is `c` and whose error is `e` is worth `T(e) / T(e')`, where `e'` is traditional's
error at `c`. That is `T(e) / c` unless traditional training gets worse with length, as it does when
it learns wrong labels; divided by `T(e')`, it is worth 1 at each of its lengths even there. Outside
the curve only a bound is known, and with one length nothing at all.

The interval of one worth holds every length at which traditional training cannot be told from the
group: where the 95 % interval of their difference, seed by seed, includes zero. It therefore leaves
1 out exactly where the difference at equal cost is resolved, and has ends where the worth is a
bound. The mean over several has a jackknife's, over seeds, on the logarithm: a bootstrap's is too
narrow by a third with five seeds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
import pandas as pd

from selective_backprop_lab.analysis.grouping import BASELINE, Comparison, RunGroup
from selective_backprop_lab.analysis.run_summary import listed
from selective_backprop_lab.analysis.statistics import (
    ENOUGH_SEEDS,
    Axis,
    at,
    by_seed,
    estimate,
    final_error,
    resolution,
    t_quantile,
)
from selective_backprop_lab.analysis.verdict import Verdict
from selective_backprop_lab.records.schema import Run
from selective_backprop_lab.shapes import Float, Int64

WORTH = "Worth, as a multiple of its cost in traditional training"
_STEPS = 2000  # of a curve, at which groups are compared
_LEAST = 1e-3  # percent: no test set resolves less, and nought has no logarithm
_SAME = 1e-9  # relative: errors that differ by rounding are equal
_MOST_NAMED = 4
_UNRESOLVED = "the seeds tell no strategy from traditional training of any length"


@dataclass(frozen=True)
class Worth:
    """How many times more traditional training ends at a group's error."""

    times: float = math.nan  # NaN where nothing can be said
    side: str = ""  # ">" or "<" where the error lies outside traditional's curve, for a bound
    # 0 where the interval begins before the curve does; NaN where there are too few seeds
    low: float = math.nan
    high: float = math.nan  # infinite where it goes on after the curve's end
    reason: str = ""  # why nothing can be said
    # The worth without each seed, by that seed; nothing of one seed.
    without: Mapping[int, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The worth as a table shows it: `1.50× (1.20 to 1.90)`, `>2.00× (at least 1.10)`."""
        if self.reason:
            return "–"
        interval = ""  # of too few seeds
        if self.low > 0 and self.high < math.inf:
            interval = f" ({self.low:.2f} to {self.high:.2f})"
        elif self.low > 0:
            interval = f" (at least {self.low:.2f})"
        elif self.high < math.inf:
            interval = f" (at most {self.high:.2f})"
        elif self.low == 0:
            interval = " (unresolved)"
        return f"{self.side}{self.times:.2f}×{interval}"

    @property
    def words(self) -> str:
        """The worth in a sentence."""
        return self.text.replace(">", "more than ").replace("<", "less than ")

    @property
    def is_resolved(self) -> bool:
        """Whether the interval has an end: seeds enough, that tell it from some length."""
        return self.low > 0 or self.high < math.inf

    def is_at_least(self, limit: float) -> Verdict:
        """Judge whether the worth is a limit or more: with its whole interval."""
        if self.low >= limit:
            return Verdict.HOLDS
        return Verdict.FAILS if self.high < limit else Verdict.OPEN


def worth(
    group: RunGroup,
    comparison: Comparison,
    axis: Axis = "cost",
    *,
    measure: Callable[[Run], float] | None = None,
) -> Worth:
    """Return what a group is worth, over the seeds that it shares with traditional training.

    Cost is what the axis says: passes of traditional training, or seconds. Instead of the final
    error, the measure may be a positive number of any unit, the lower the better.
    """
    if group.is_baseline or not group.runs:
        return Worth(reason="there is nothing to measure")
    baselines = comparison.strategies.get(BASELINE, [])
    if len(baselines) < 2:
        return Worth(reason="traditional was run at one length only (several --budget tell)")
    # A row for each seed that all lengths of traditional and the group have.
    every = [*baselines, group]
    places = pd.concat([by_seed(g, lambda run: at(run.points[-1], axis)) for g in every], axis=1)
    places = places.dropna()
    if places.empty:
        return Worth(reason="no seed is shared with traditional at all its lengths")
    errors = (
        pd.concat([by_seed(g, measure or final_error) for g in every], axis=1)
        .loc[places.index]
        .to_numpy()
    )
    if not np.isfinite(errors).all():
        return Worth(reason="a run diverged")
    *costs, cost = places.mean().to_numpy()
    least = 0.0 if measure else resolution(run for g in every for run in g.runs)
    return read_off(
        np.array(costs), errors[:, :-1], cost, errors[:, -1], [*places.index], least=least
    )


def read_off(
    costs: Float[np.ndarray, " length"],
    curve: Float[np.ndarray, "seed length"],
    cost: float,
    error: Float[np.ndarray, " seed"],
    seeds: Sequence[int],
    *,
    least: float = 0.0,
) -> Worth:
    """Return what ending at an error is worth, by the curve of traditional training.

    Args:
        costs: of traditional training at its lengths, at least two, in any order and unit.
        curve: its final errors, in percent.
        cost: of what is judged, in the same unit. Outside the lengths traditional training is
            taken to be as it is at the nearer end.
        error: its final errors, in percent.
        seeds: the name of each row.
        least: what one test example makes of the errors; no difference is known to less.
    """
    order, count = np.argsort(costs), len(seeds)
    lengths = np.log(costs[order])
    grid = np.union1d(np.linspace(lengths[0], lengths[-1], _STEPS), lengths)
    logs = np.log(np.maximum(curve[:, order], _LEAST))
    own = np.exp(np.stack([np.interp(grid, lengths, each) for each in logs]))
    # All seeds, then all but each.
    kept = np.vstack([np.ones(count), 1 - np.eye(count)][: 1 + (count > 1)])
    kept /= kept.sum(axis=1, keepdims=True)
    means, ends = kept @ own, kept @ np.maximum(error, _LEAST)
    inside = float(np.clip(math.log(cost), grid[0], grid[-1]))
    same = np.array([np.interp(inside, grid, mean) for mean in means])
    (reached, side), (usual, _) = (_reached(grid, means, found) for found in (ends, same))
    # In units of the group's own cost, and of traditional training of that cost.
    unit = usual + math.log(cost) - inside
    times = np.exp(reached - unit)
    low, high = math.nan, math.nan
    if count >= ENOUGH_SEEDS:
        apart = _alike(grid, own, error, means[0], reached[0], least)
        low, high = np.exp(apart - unit[0]).tolist()
        low, high = (0.0 if side[0] < 0 else low), (math.inf if side[0] > 0 else high)
    return Worth(
        times=float(times[0]),
        side={-1: "<", 0: "", 1: ">"}[int(side[0])],
        low=low,
        high=high,
        without=dict(zip(seeds, times[1:].tolist(), strict=True)) if count > 1 else {},
    )


def mean_worth(found: Sequence[Worth]) -> Worth:
    """Return the geometric mean of worths, with a jackknife's interval over the seeds they share.

    A bound among them counts as what it is at least, or at most, and makes the mean one.

    Returns:
        One with a reason where none of them says anything.
    """
    found = [each for each in found if not each.reason]
    if not found:
        return Worth(reason="there is nothing to measure")
    whole = fmean(math.log(each.times) for each in found)
    sides = {each.side for each in found} - {""}
    seeds = set.intersection(*(set(each.without) for each in found))
    n = len(seeds)
    parts = {seed: fmean(math.log(each.without[seed]) for each in found) for seed in sorted(seeds)}
    spread = estimate([n * whole - (n - 1) * part for part in parts.values()])
    known = spread.seeds >= ENOUGH_SEEDS
    return Worth(
        times=math.exp(whole),
        side="".join(sides) if len(sides) == 1 else "",
        low=0.0 if known and "<" in sides else math.exp(whole - spread.half_width),
        high=math.inf if known and ">" in sides else math.exp(whole + spread.half_width),
        without={seed: math.exp(part) for seed, part in parts.items()},
    )


def worth_words(comparison: Comparison) -> str:
    """Say what each strategy is worth; nothing where there is none to hold against traditional.

    Of a strategy's lengths at which the interval has an end the longest counts that is no bound,
    else the longest.
    """
    found = [
        (group, worth(group, comparison))
        for group in comparison.groups
        if group.runs and not group.is_baseline
    ]
    if comparison.baseline is None or not found:
        return ""
    said: dict[str, tuple[RunGroup, Worth]] = {}
    for group, own in found:
        before = said.get(group.name)
        if own.is_resolved and (before is None or (before[1].side and not own.side)):
            said[group.name] = group, own
    if not said:
        # Of too few seeds the verdict says so already.
        told = [own.reason or _UNRESOLVED for _, own in found if own.reason or own.low >= 0]
        return f"cannot be said, since {listed(sorted({*told}))}." if told else ""
    ranked = sorted(said.values(), key=lambda each: -each[1].times)
    words = [f"{group.label} {own.words}" for group, own in ranked[:_MOST_NAMED]]
    if len(ranked) > _MOST_NAMED:
        words.append(f"{len(ranked) - _MOST_NAMED} others below that")
    if open_ := [
        name for name in dict.fromkeys(group.name for group, _ in found) if name not in said
    ]:
        words.append(f"unresolved: {listed(open_)}")
    return f"{'; '.join(words)}."


def _reached(
    grid: Float[np.ndarray, " place"],
    means: Float[np.ndarray, "kept place"],
    targets: Float[np.ndarray, " kept"],
) -> tuple[Float[np.ndarray, " kept"], Int64[np.ndarray, " kept"]]:
    """Return the least length at which traditional ends at an error, as a logarithm.

    Returns:
        The length, and on which side of the curve the error lies: -1 where already the shortest
        ends lower, 1 where none does; the length is then the nearer end's.
    """
    lowest, targets = np.minimum.accumulate(means, axis=1), targets[:, None]
    there = lowest <= targets * (1 + _SAME)
    first = np.where(there.any(axis=1), there.argmax(axis=1), len(grid) - 1)[:, None]
    before = np.maximum(first - 1, 0)
    start, end = (np.log(np.take_along_axis(lowest, at, axis=1)) for at in (before, first))
    share = np.clip((start - np.log(targets)) / np.maximum(start - end, 1e-12), 0, 1)
    place = grid[before] + share * (grid[first] - grid[before])
    short = lowest[:, 0] < targets[:, 0] * (1 - _SAME)
    side = np.where(there.any(axis=1), -short.astype(np.int64), 1)
    return np.where(side < 0, grid[0], np.where(side > 0, grid[-1], place[:, 0])), side


def _alike(
    grid: Float[np.ndarray, " place"],
    own: Float[np.ndarray, "seed place"],
    error: Float[np.ndarray, " seed"],
    mean: Float[np.ndarray, " place"],
    reached: float,
    least: float,
) -> Float[np.ndarray, " 2"]:
    """Return the least and the greatest length that cannot be told from a group, as logarithms.

    A length counts as the least one at which traditional is in the mean as low. Negative infinity
    where the shortest cannot be told from it, infinity where the best cannot.
    """
    apart = error[:, None] - own
    half = t_quantile(len(error)) * apart.std(axis=0, ddof=1) / math.sqrt(len(error))
    alike = np.abs(apart.mean(axis=0)) <= np.maximum(half, least) + _SAME
    lowest = np.minimum.accumulate(mean)
    places = grid[np.searchsorted(-lowest, -mean[alike] * (1 + _SAME))]
    ends = np.array([*places, reached])
    low = -math.inf if ends.min() <= grid[0] else ends.min()
    high = math.inf if alike[mean.argmin()] else ends.max()
    return np.array([low, high])
