"""What several seeds say: a mean with Student's 95 % interval, and which side of a limit it is on.

Below three seeds there is no interval: of two, it is wide by chance or narrow by chance.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtr, stdtrit

ENOUGH_SEEDS = 3  # for an interval, and so for a verdict
_CONFIDENCE = 0.95
Side = Literal["lower", "higher", "unresolved", "unknown"]
"""Of a limit, on which an interval lies; "unknown" where there is none."""
VERDICTS: Mapping[Side, str] = {"lower": "gains", "unresolved": "level", "higher": "loses"}
"""What is said of an arm, by the side of zero of its error less that of its rival."""


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

    @property
    def p(self) -> float:
        """How likely a mean at least as far from zero is by chance, in Student's t-test.

        Below 0.05 where the interval leaves zero out; NaN where the spread is unknown.
        """
        if not self.half_width:
            return float(not self.mean)
        errors = abs(self.mean) / self.half_width * t_quantile(max(2, self.seeds))
        return 2.0 * float(stdtr(self.seeds - 1, -errors))

    def against(self, limit: float = 0.0) -> Side:
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


def holm(found: Sequence[Estimate]) -> list[Side]:
    """Judge on which side of zero each of several estimates lies, together.

    Each alone is wrong in one of 20 where nothing differs. By Holm's correction the odds are one in
    20 that any of them is: the smallest of n p-values is held against 0.05 / n, the next against
    0.05 / (n - 1), until one is too large; it and all larger ones are unresolved.

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
