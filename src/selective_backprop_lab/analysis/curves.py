"""A number along an axis, averaged over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from selective_backprop_lab.analysis.estimates import ENOUGH_SEEDS, estimate
from selective_backprop_lab.analysis.queries import BY_SEED

AXIS_WORDS = {
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
AXIS_LABELS = AXIS_WORDS | {
    "cost": "cost, in passes of plain training",
    "seconds": "wall seconds, evaluation left out",
    "cpu_seconds": "CPU seconds, evaluation left out",
    "trained": "backward passes, in examples",
    "candidates": "candidates: examples that came up",
}
_SAME = 1e-9  # a difference in progress that may be rounding


@dataclass(frozen=True)
class Curve:
    """A number along an axis: its mean over seeds, with an interval at each place."""

    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]  # NaN where there are too few seeds for an interval
    high: tuple[float, ...]
    seeds: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]  # each seed's places and values

    @classmethod
    def over_seeds(cls, x: Sequence[Sequence[float]], y: Sequence[Sequence[float]]) -> "Curve":
        """Average one curve per seed; all curves have the same number of places."""
        columns = [estimate(column) for column in np.transpose(y).tolist()]
        return cls(
            x=tuple(np.mean(x, axis=0).tolist()) if len(x) else (),
            mean=tuple(column.mean for column in columns),
            low=tuple(column.low for column in columns),
            high=tuple(column.high for column in columns),
            seeds=tuple((tuple(a), tuple(b)) for a, b in zip(x, y, strict=True)),
        )

    @property
    def has_band(self) -> bool:
        """Whether there are enough seeds for a band. Otherwise each seed is drawn."""
        return len(self.seeds) >= ENOUGH_SEEDS


def curve(runs: pd.DataFrame, axis: str, column: str = "error") -> Curve:
    """Return a column of one arm's runs along an axis, averaged over seeds at equal progress.

    Seeds meet at the moments of the seed with the fewest; those without a place are left out.
    """
    placed = runs[(runs.evaluations > 0) & runs[axis].notna()]
    seeds = [own for _, own in placed.groupby(BY_SEED)]
    if not seeds:
        return Curve.over_seeds([], [])
    moments = min(seeds, key=len).progress.to_numpy(float)
    start = max(own.progress.iloc[0] for own in seeds)
    end = min(own.progress.iloc[-1] for own in seeds)
    moments = moments[(moments >= start - _SAME) & (moments <= end + _SAME)]
    places, values = (
        [
            np.interp(moments, own.progress.to_numpy(float), own[name].to_numpy(float)).tolist()
            for own in seeds
        ]
        for name in (axis, column)
    )
    return Curve.over_seeds(places, values)
