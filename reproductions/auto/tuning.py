"""The learning rate that is best for each strategy and length, from runs made to find it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from selective_backprop_lab.analysis.queries import counted, last_tenth
from selective_backprop_lab.budget import Budget

Cell = tuple[str, Budget]
"""A strategy and a length."""
_CELL = ("arm", "unit", "length")


@dataclass(frozen=True)
class Tuned:
    """What came of the learning rates that a strategy was tried at, at one length."""

    # Mean final error over the seeds by rate, rising; infinite where one diverged.
    errors: Mapping[float, float]

    @property
    def rate(self) -> float:
        """The rate of the lowest mean error, the lowest of equals."""
        return min(self.errors, key=self.errors.__getitem__)

    @property
    def error(self) -> float:
        """The lowest mean error."""
        return self.errors[self.rate]

    @property
    def edge(self) -> int:
        """1 where the best is the highest that was tried, -1 where it is the lowest, else 0."""
        rates = [*self.errors]
        return (self.rate == rates[-1]) - (self.rate == rates[0]) if len(rates) > 1 else 0


def tuned(evaluations: pd.DataFrame, column: str = "error") -> dict[Cell, Tuned]:
    """Return the learning rates of each strategy and length, judged by a mean over seeds.

    Only finished runs count. A rate that lacks a seed which another rate of the cell has is taken
    to have diverged, since such a run leaves no finished record: its error is infinite.
    """
    known = last_tenth(counted(evaluations)).groupby([*_CELL, "learning_rate", "seed"])
    ends = known[column].mean().fillna(math.inf)
    found: dict[Cell, dict[float, dict[int, float]]] = {}
    for (arm, unit, length, rate, seed), error in ends.items():
        found.setdefault((arm, Budget(unit, length)), {}).setdefault(rate, {})[seed] = error
    best = {}
    for cell, by_rate in found.items():
        seeds = sorted({seed for errors in by_rate.values() for seed in errors})
        means = {
            rate: sum(errors.get(seed, math.inf) for seed in seeds) / len(seeds)
            for rate, errors in by_rate.items()
        }
        if min(means.values()) < math.inf:
            best[cell] = Tuned(means)
    return best
