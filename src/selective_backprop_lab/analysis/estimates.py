"""What several seeds say: a mean with Student's 95 % interval, and which side of a limit it is on.

Below three seeds there is no interval: of two, it is wide by chance or narrow by chance.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtrit

ENOUGH_SEEDS = 3  # for an interval, and so for a verdict
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its 95 % interval."""

    mean: float
    half_width: float  # NaN where too few seeds leave the spread unknown
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
        """The ends of the interval, none below zero; nothing where the spread is unknown."""
        return tuple(max(0.0, end) for end in (self.low, self.high) if math.isfinite(end))

    def against(self, limit: float = 0.0) -> Literal["lower", "higher", "unresolved", "unknown"]:
        """Judge on which side of a limit the interval lies; "unknown" where there is none."""
        if math.isinf(self.mean) and self.seeds >= ENOUGH_SEEDS:  # never, with any seed
            return "higher" if self.mean > 0 else "lower"
        if math.isnan(self.half_width):
            return "unknown"
        if self.low > limit:
            return "higher"
        return "lower" if self.high < limit else "unresolved"


def estimate(values: Sequence[float], resolution: float = 0.0) -> Estimate:
    """Return the mean of one value per seed, with Student's 95 % interval.

    There is none below three seeds. One narrower than the resolution, which is the least difference
    between two values that can be seen, is widened to it.
    """
    n = len(values)
    if n == 0:
        return Estimate(math.nan, math.nan, 0)
    mean = statistics.fmean(values)
    if n < ENOUGH_SEEDS or not all(map(math.isfinite, values)):
        return Estimate(mean, math.nan, n)
    half_width = t_quantile(n) * statistics.stdev(values) / math.sqrt(n)
    return Estimate(mean, max(half_width, resolution), n)


def t_quantile(seeds: int) -> float:
    """Return how many standard errors an interval over so many seeds reaches to either side."""
    return float(stdtrit(seeds - 1, (1 + _CONFIDENCE) / 2))
