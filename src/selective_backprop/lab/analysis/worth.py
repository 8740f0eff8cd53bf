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
from jaxtyping import Float

from selective_backprop.lab.analysis.grouping import BASELINE, Comparison, RunGroup
from selective_backprop.lab.analysis.statistics import Axis, finals, t_quantile

_STEPS = 2000  # of a curve, at which groups are compared


@dataclass(frozen=True)
class Worth:
    """How many times a group's cost traditional training needs to end at its error."""

    times: float  # NaN where nothing can be said
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
        return Worth(math.nan, reason="there is nothing to measure")
    baselines = comparison.strategies.get(BASELINE, [])
    if len(baselines) < 2:
        return Worth(
            math.nan, reason="traditional was run at one length only (several --budget tell)"
        )
    theirs, own = finals(baselines, axis), finals([group], axis).set_index("seed")
    errors, places = (
        theirs.pivot(index="seed", columns="label", values=value) for value in ("error", "place")
    )
    own = own.loc[own.index.intersection(places.dropna().index)]
    if own.empty:
        return Worth(math.nan, reason="no seed is shared with traditional at all its lengths")
    lengths = np.log(places.loc[own.index].mean().to_numpy())
    order = np.argsort(lengths)
    lengths, curve = lengths[order], errors.loc[own.index].to_numpy()[:, order]
    error, cost = own["error"].to_numpy(), math.log(own["place"].mean())
    if not (np.isfinite(curve).all() and np.isfinite(error).all()):
        return Worth(math.nan, reason="a run diverged")
    reached, side = _reached(lengths, curve.mean(axis=0), float(error.mean()))
    low, high = _alike(lengths, curve, error, reached)
    times = [math.exp(length - cost) for length in (reached, low, high)]
    return Worth(
        times[0],
        side,
        0.0 if side == "<" or low == lengths[0] else times[1],
        math.inf if side == ">" or high == lengths[-1] else times[2],
    )


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
