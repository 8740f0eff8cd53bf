"""Means over seeds with Student's 95 % interval, curves of them, and verdicts on claims.

With fewer than three seeds there is no interval, because its width would be a matter of chance.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import nctdtrinc, stdtr, stdtrit

BY_SEED = "seed"
ENOUGH_SEEDS = 3  # for an interval and a verdict
MOST_SEEDS = 30  # that anybody is asked for
_CONFIDENCE, _POWER = 0.95, 0.8
_SAME = 1e-9  # a difference in progress that may be rounding
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

    Source:
        Holm 1979, Scandinavian Journal of Statistics 6:65-70.
    """
    sides = [each.against() for each in found]
    tested = [i for i, each in enumerate(found) if not math.isnan(each.p)]
    stands = True
    for passed, i in enumerate(sorted(tested, key=lambda i: found[i].p)):
        stands = stands and found[i].p < (1.0 - _CONFIDENCE) / (len(tested) - passed)
        if not stands:
            sides[i] = "unresolved"
    return sides


class Verdict(StrEnum):
    """Whether a claim holds: `OPEN` if the interval includes the limit, or there is no interval."""

    HOLDS = "agrees"
    FAILS = "disagrees"
    OPEN = "cannot say"


@dataclass(frozen=True)
class Finding:
    """A claim, whether it holds, and the numbers in words."""

    claim: str
    verdict: Verdict
    measured: str
    aside: str = ""  # why the verdict does not count, such as "by construction"


def is_above(found: Estimate, limit: float = 0.0) -> Verdict:
    """Judge whether the whole 95 % interval of a quantity lies above a limit."""
    sides = {"higher": Verdict.HOLDS, "lower": Verdict.FAILS}
    return sides.get(found.against(limit), Verdict.OPEN)


def opposite(verdict: Verdict) -> Verdict:
    """Return the verdict on the opposite claim."""
    turned = {Verdict.HOLDS: Verdict.FAILS, Verdict.FAILS: Verdict.HOLDS}
    return turned.get(verdict, verdict)


def tally(found: Iterable[Finding]) -> str:
    """Return how many findings there are of each verdict or reason: `agrees 2, cannot say 1`."""
    counts = Counter(finding.aside or finding.verdict for finding in found)
    words = dict.fromkeys([*Verdict, *counts])
    return ", ".join(f"{word} {counts[word]}" for word in words if counts[word])


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
