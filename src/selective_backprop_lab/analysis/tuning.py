"""The learning rate that is best for each strategy and length, from runs made to find it."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from selective_backprop_lab.analysis.grouping import counts, length_of
from selective_backprop_lab.analysis.statistics import final_error
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.records.schema import Run

Cell = tuple[str, Budget]
"""A strategy and a length."""


@dataclass(frozen=True)
class Tuned:
    """What came of the learning rates that a strategy was tried at, at one length."""

    # Mean final error over the seeds, in percent, by rate, rising; infinite where one diverged.
    errors: Mapping[float, float]

    @property
    def rate(self) -> float:
        """The rate of the lowest mean error, the lowest of equals."""
        return min(self.errors, key=self.errors.__getitem__)

    @property
    def edge(self) -> int:
        """1 where the best is the highest that was tried, -1 where it is the lowest, else 0."""
        rates = [*self.errors]
        return (self.rate == rates[-1]) - (self.rate == rates[0]) if len(rates) > 1 else 0


def tuned(runs: Iterable[Run], measure: Callable[[Run], float] = final_error) -> dict[Cell, Tuned]:
    """Return the learning rates of each strategy and length, judged by a mean over seeds.

    Only finished runs count. A rate that lacks a seed which another rate of the cell has is taken
    to have diverged, since such a run leaves no finished record: its error is infinite.
    """
    found: dict[Cell, dict[float, dict[int, float]]] = {}
    for run in filter(counts, runs):
        rates = found.setdefault((run.header.arm, length_of(run)), {})
        rate = float(run.header.config["recipe"]["learning_rate"])
        error = measure(run)
        rates.setdefault(rate, {})[run.header.seed] = error if math.isfinite(error) else math.inf
    best = {}
    for cell, rates in found.items():
        most = max(map(len, rates.values()))
        means = {
            rate: fmean(rates[rate].values()) if len(rates[rate]) == most else math.inf
            for rate in sorted(rates)
        }
        if min(means.values()) < math.inf:
            best[cell] = Tuned(means)
    return best
