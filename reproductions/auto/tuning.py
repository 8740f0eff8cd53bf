"""The learning rate that is best for each strategy and length, from runs made to find it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from selective_backprop_lab.analysis.queries import counted, last_tenth
from selective_backprop_lab.budget import Budget

Cell = tuple[str, Budget]
"""A strategy and a length."""


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
    best = {}
    for _, rows in last_tenth(counted(evaluations)).groupby(["arm", "unit", "length"]):
        cell = rows.arm.iloc[0], Budget(rows.unit.iloc[0], rows.length.iloc[0])
        errors = rows.groupby(["learning_rate", "seed"])[column].mean().unstack().fillna(math.inf)
        means = errors.mean(axis=1)
        if means.min() < math.inf:
            best[cell] = Tuned(means.to_dict())
    return best
