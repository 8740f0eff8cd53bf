"""Ratios of seconds, measured in interleaved rounds."""

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

FOUND = TypeVar("FOUND")


@dataclass(frozen=True)
class Median:
    """A median over rounds, with its 95 % interval.

    Attributes:
        median: of the rounds' values.
        low: the interval's lower end.
        high: the interval's upper end.
        rounds: how many there were.
    """

    median: float
    low: float
    high: float
    rounds: int

    def within(self, share: float) -> bool:
        """Return whether both ends of the interval are within a share of the median of it."""
        return max(self.high - self.median, self.median - self.low) <= share * self.median


def take_rounds(arms: Mapping[str, Callable[[], FOUND]]) -> Iterator[dict[str, FOUND]]:
    """Run all arms once per round, in a new order each round, without end.

    Take ratios within a round, so that a drift of the machine between rounds does not matter.
    Take their median over rounds, so that a disturbed round does not matter either.

    Args:
        arms: what to run, by name; each is run once before the first round.

    Yields:
        What each arm returned in the round.
    """
    shuffle = random.Random(0).shuffle
    for arm in arms.values():
        arm()
    while True:
        order = list(arms)
        shuffle(order)
        found = {name: arms[name]() for name in order}
        yield {name: found[name] for name in arms}


def summarise(values: Sequence[float]) -> Median:
    """Return the median and its interval by order statistics, which assume no distribution.

    Fewer than six rounds have no such interval; the lowest and highest values are its ends then.

    Args:
        values: one per round, at least one.
    """
    ordered = sorted(values)
    count = len(ordered)
    reach = 0.98 * math.sqrt(count)  # 1.96 standard deviations of a binomial's half
    low = max(0, math.floor(count / 2 - reach) - 1)
    high = min(count - 1, math.ceil(count / 2 + reach))
    return Median(statistics.median(ordered), ordered[low], ordered[high], count)
