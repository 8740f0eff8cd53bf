"""Means over seeds with Student's 95 % interval, and on which side of a limit the interval lies.

With fewer than three seeds there is no interval, because its width would be a matter of chance.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import nctdtrinc, stdtr, stdtrit

ENOUGH_SEEDS = 3  # for an interval and a verdict
MOST_SEEDS = 30  # that anybody is asked for
_CONFIDENCE, _POWER = 0.95, 0.8
Side = Literal["lower", "higher", "unresolved", "unknown"]
"""The side of a limit on which an interval lies; "unknown" without an interval."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its 95 % interval."""

    mean: float
    half_width: float  # NaN if there are too few seeds for an interval
    seeds: int

    @property
    def low(self) -> float:
        """The interval's lower end."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The interval's upper end."""
        return self.mean + self.half_width

    @property
    def ends(self) -> tuple[float, ...]:
        """The ends of the interval, cut off at zero; empty without an interval."""
        return tuple(max(0.0, end) for end in (self.low, self.high) if math.isfinite(end))

    @property
    def p(self) -> float:
        """The p-value of Student's t-test that the mean is zero; NaN without an interval."""
        if not self.half_width:
            return float(not self.mean)
        errors = abs(self.mean) / self.half_width * t_quantile(max(2, self.seeds))
        return 2.0 * float(stdtr(self.seeds - 1, -errors))

    def against(self, limit: float = 0.0) -> Side:
        """Return on which side of a limit the interval lies; "unknown" without an interval."""
        if math.isinf(self.mean) and self.seeds >= ENOUGH_SEEDS:  # some seed never got there
            return "higher" if self.mean > 0 else "lower"
        if math.isnan(self.half_width):
            return "unknown"
        if self.low > limit:
            return "higher"
        return "lower" if self.high < limit else "unresolved"


def estimate(values: Sequence[float], resolution: float = 0.0) -> Estimate:
    """Return the mean over seeds and, from three on, its interval, at least a `resolution` wide."""
    n = len(values)
    if n == 0:
        return Estimate(math.nan, math.nan, 0)
    mean = statistics.fmean(values)
    if n < ENOUGH_SEEDS or not all(map(math.isfinite, values)):
        return Estimate(mean, math.nan, n)
    half_width = t_quantile(n) * statistics.stdev(values) / math.sqrt(n)
    return Estimate(mean, max(half_width, resolution), n)


def t_quantile(seeds: int) -> float:
    """Return how many standard errors an interval over this many seeds reaches to either side."""
    return float(stdtrit(seeds - 1, (1 + _CONFIDENCE) / 2))


def detectable(found: Estimate, tests: int = 1, seeds: int | None = None) -> float:
    """Return the least difference that would be found in four of five comparisons like this one.

    It stands out among `tests` differences that Holm's correction covers, with as many seeds as the
    estimate has, or with `seeds`. NaN without an interval.
    """
    n = found.seeds if seeds is None else seeds
    if n < ENOUGH_SEEDS or math.isnan(found.half_width):
        return math.nan
    limit = stdtrit(n - 1, 1 - (1 - _CONFIDENCE) / (2 * tests))
    deviation = found.half_width / t_quantile(found.seeds) * math.sqrt(found.seeds)
    return float(nctdtrinc(n - 1, 1 - _POWER, limit)) * deviation / math.sqrt(n)


def seeds_to_find(difference: float, found: Estimate, tests: int = 1) -> int | None:
    """Return how many seeds `detectable` takes to be at most a difference; None if over 30."""
    numbers = range(ENOUGH_SEEDS, MOST_SEEDS + 1)
    return next((n for n in numbers if detectable(found, tests, n) <= abs(difference)), None)


def holm(found: Sequence[Estimate]) -> list[Side]:
    """Return on which side of zero each of several estimates lies, with Holm's correction.

    If nothing differs, any of the answers is wrong with a probability of 1 in 20.

    Source:
        Holm 1979, A simple sequentially rejective multiple test procedure, Scandinavian Journal
        of Statistics 6:65-70.
    """
    sides = [each.against() for each in found]
    tested = [i for i, each in enumerate(found) if not math.isnan(each.p)]
    stands = True
    for passed, i in enumerate(sorted(tested, key=lambda i: found[i].p)):
        stands = stands and found[i].p < (1.0 - _CONFIDENCE) / (len(tested) - passed)
        if not stands:
            sides[i] = "unresolved"
    return sides
