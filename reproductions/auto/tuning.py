"""The best learning rate of each strategy and length, from runs that try several."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from selective_backprop_lab.analysis.queries import counted, last_tenth
from selective_backprop_lab.budget import Budget

Cell = tuple[str, Budget]
"""A strategy and a length."""


@dataclass(frozen=True)
class Tuned:
    """The mean final error at each learning rate of a strategy at one length."""

    errors: Mapping[float, float]  # by rate, rising; infinite if a seed diverged

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
        """1 if the best rate is the highest that was tried, -1 if it is the lowest, else 0."""
        rates = [*self.errors]
        return (self.rate == rates[-1]) - (self.rate == rates[0]) if len(rates) > 1 else 0


def tuned(evaluations: pd.DataFrame, column: str = "error") -> dict[Cell, Tuned]:
    """Return the learning rates of each strategy and length, judged by the mean over seeds.

    Only finished runs count. A run that diverges leaves no finished record, so the error of a rate
    is infinite if it lacks a seed of another rate.
    """
    cells: Any = last_tenth(counted(evaluations)).groupby(["arm", "unit", "length"])
    found = dict[Cell, Tuned]()
    for (arm, unit, length), own in cells:
        ends = own.pivot_table(column, "learning_rate", "seed", dropna=False)
        errors = ends.mean(axis=1, skipna=False).fillna(math.inf)
        if errors.min() < math.inf:
            found[arm, Budget(unit, length)] = Tuned(errors.to_dict())
    return found
