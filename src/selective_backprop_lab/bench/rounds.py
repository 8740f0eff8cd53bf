"""Time variants in interleaved rounds: medians of ratios, and how well they are known."""

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

FOUND = TypeVar("FOUND")
KNOWN = 0.01  # an interval is narrow enough if its half-width is this share of its median
LEAST = 6  # rounds, even if the seconds are over; fewer rounds have no 95 % interval


@dataclass(frozen=True)
class Median:
    """A median over rounds, and the lower and upper end of its 95 % interval."""

    median: float
    low: float
    high: float
    rounds: int

    def within(self, share: float) -> bool:
        """Return whether both ends of the interval differ from the median by at most a share."""
        return max(self.high - self.median, self.median - self.low) <= share * self.median

    def verdict(self, limit: float) -> str:
        """Return "pass" or "fail" if the whole interval is on one side of a limit."""
        if self.high <= limit:
            return "pass"
        return "fail" if self.low > limit else "unresolved"


def take_rounds(arms: Mapping[str, Callable[[], FOUND]]) -> Iterator[dict[str, FOUND]]:
    """Run all arms once, then once per round in a new order, and yield what each returned."""
    shuffle = random.Random(0).shuffle
    for arm in arms.values():
        arm()
    while True:
        order = list(arms)
        shuffle(order)
        found = {name: arms[name]() for name in order}
        yield {name: found[name] for name in arms}


def enough_rounds(
    arms: Mapping[str, Callable[[], FOUND]],
    quantities: Sequence[Callable[[Mapping[str, FOUND]], float]],
    *,
    seconds: float,
    least: int | None = None,
    most: float = math.inf,
    tell: Callable[[int, float], None] = lambda rounds, spent: None,
) -> list[dict[str, FOUND]]:
    """Take rounds until every quantity is known within `KNOWN`, or the time is up.

    A quantity is a function of what the arms of a round returned. No round begins later than
    `seconds` after the first, but `least` rounds are taken (None for `LEAST`) and at most `most`.
    """
    rounds: list[dict[str, FOUND]] = []
    begun = math.inf
    for found in take_rounds(arms):
        rounds.append(found)
        begun = min(begun, now := time.perf_counter())
        tell(len(rounds), now - begun)
        if len(rounds) < min(LEAST if least is None else least, most):
            continue
        over = now - begun >= seconds or len(rounds) >= most
        medians = (summarise([of(each) for each in rounds]) for of in quantities)
        if over or (quantities and all(each.within(KNOWN) for each in medians)):
            break
    return rounds


def summarise(values: Sequence[float]) -> Median:
    """Return the median and its interval from order statistics, which assume no distribution."""
    ordered = sorted(values)
    count = len(ordered)
    reach = 0.98 * math.sqrt(count)  # 1.96 standard deviations of a binomial with p = 1/2
    low = max(0, math.floor(count / 2 - reach) - 1)
    high = min(count - 1, math.ceil(count / 2 + reach))
    return Median(statistics.median(ordered), ordered[low], ordered[high], count)
