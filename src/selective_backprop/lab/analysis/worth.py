"""What a strategy is worth: how many times its cost traditional training needs for the same error.

Traditional's final error over its lengths is a curve, straight between two lengths over the
logarithm of cost. A group is worth 2 where traditional training of twice its cost ends at its
error. Outside that curve only a bound is known, and with one length nothing at all.

The interval holds every length at which traditional training cannot be told from the group: where
the 95 % interval of their difference, seed by seed, includes zero. It therefore leaves 1 out
exactly where the difference at equal cost is resolved.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from selective_backprop.lab.analysis.grouping import BASELINE, Comparison, RunGroup
from selective_backprop.lab.analysis.run_summary import listed
from selective_backprop.lab.analysis.statistics import Axis, at, by_seed, t_quantile

WORTH = "Worth, as a multiple of its cost in traditional training"
_STEPS = 2000  # of a curve, at which groups are compared
_MOST_NAMED = 4


@dataclass(frozen=True)
class Worth:
    """How many times a group's cost traditional training needs to end at its error."""

    times: float = math.nan  # NaN where nothing can be said
    side: str = ""  # ">" or "<" where the error lies outside traditional's curve, for a bound
    low: float = math.nan  # 0 where the interval begins before the curve does
    high: float = math.nan  # infinite where it goes on after the curve's end
    reason: str = ""  # why nothing can be said

    @property
    def text(self) -> str:
        """The worth as a table shows it: `1.50× (1.20 to 1.90)`, `>2.00× (at least 1.10)`."""
        if self.reason:
            return "–"
        interval = ""  # of one seed
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


def worth(group: RunGroup, comparison: Comparison, axis: Axis = "cost") -> Worth:
    """Return what a group is worth, over the seeds that it shares with traditional training.

    Cost is what the axis says: passes of traditional training, or seconds.
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
    errors = pd.concat([by_seed(g) for g in every], axis=1).loc[places.index].to_numpy()
    if not np.isfinite(errors).all():
        return Worth(reason="a run diverged")
    *lengths, cost = np.log(places.mean().to_numpy())
    order = np.argsort(lengths)
    lengths, curve, error = np.array(lengths)[order], errors[:, order], errors[:, -1]
    reached, side = _reached(lengths, curve.mean(axis=0), float(error.mean()))
    low, high = _alike(lengths, curve, error, reached)
    times = [math.exp(length - cost) for length in (reached, low, high)]
    return Worth(
        times[0],
        side,
        0.0 if side == "<" or low == lengths[0] else times[1],
        math.inf if side == ">" or high == lengths[-1] else times[2],
    )


def worth_words(comparison: Comparison) -> str:
    """Say what each strategy is worth; nothing where there is none to hold against traditional.

    Of a strategy's lengths the longest counts, and where that gives a bound alone, also the
    longest whose error traditional training reaches.
    """
    found = [
        (group, worth(group, comparison))
        for group in comparison.groups
        if group.runs and not group.is_baseline
    ]
    if comparison.baseline is None or not found:
        return ""
    said: dict[str, list[tuple[RunGroup, Worth]]] = {}
    for group, own in found:
        before = said.setdefault(group.name, [])
        if not own.reason and (not before or (before[-1][1].side and not own.side)):
            before.append((group, own))
    ranked = sorted(filter(None, said.values()), key=lambda each: -each[0][1].times)
    if not ranked:
        return f"cannot be said, since {listed(sorted({own.reason for _, own in found}))}."
    words = [
        " and ".join(f"{group.label} {own.words}" for group, own in each)
        for each in ranked[:_MOST_NAMED]
    ]
    if len(ranked) > _MOST_NAMED:
        words.append(f"{len(ranked) - _MOST_NAMED} others below that")
    return f"{'; '.join(words)}."


def _reached(
    lengths: Float[np.ndarray, " length"], means: Float[np.ndarray, " length"], target: float
) -> tuple[float, str]:
    """Return the least length at which traditional ends at an error, or its curve's nearer end."""
    if target > means[0]:
        return float(lengths[0]), "<"
    for i, mean in enumerate(means[1:]):
        if mean <= target:
            share = (means[i] - target) / max(means[i] - mean, 1e-12)
            return float(lengths[i] + share * (lengths[i + 1] - lengths[i])), ""
    return float(lengths[-1]), "" if target == means[-1] else ">"


def _alike(
    lengths: Float[np.ndarray, " length"],
    curve: Float[np.ndarray, "seed length"],
    error: Float[np.ndarray, " seed"],
    reached: float,
) -> tuple[float, float]:
    """Return the least and the greatest length that cannot be told from a group; NaN for a seed."""
    if len(error) < 2:
        return math.nan, math.nan
    grid = np.union1d(np.linspace(lengths[0], lengths[-1], _STEPS), [*lengths, reached])
    apart = error[:, None] - np.stack([np.interp(grid, lengths, own) for own in curve])
    half = t_quantile(len(error)) * apart.std(axis=0, ddof=1) / math.sqrt(len(error))
    alike = grid[np.abs(apart.mean(axis=0)) <= half + 1e-9]
    return (float(alike[0]), float(alike[-1])) if len(alike) else (reached, reached)
