"""Time arms in interleaved rounds: medians of ratios, and how well they are known."""

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
    """A median over rounds, with its 95 % interval.

    Attributes:
        median: the median of the rounds' values.
        low: the interval's lower end.
        high: the interval's upper end.
        rounds: the number of rounds.
    """

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
    """Run all arms once per round, in a new order each round, without end.

    Take ratios within a round: then changes of the machine's speed between rounds do not matter.
    Take the median of these ratios over rounds: then a disturbed round does not matter either.

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


def enough_rounds(
    arms: Mapping[str, Callable[[], FOUND]],
    ratios: Sequence[Callable[[Mapping[str, FOUND]], float]],
    *,
    seconds: float,
    least: int = LEAST,
    most: float = math.inf,
    tell: Callable[[int, float], None] = lambda rounds, spent: None,
    now: Callable[[], float] = time.perf_counter,
) -> list[dict[str, FOUND]]:
    """Take rounds until every ratio is known within `KNOWN`, or the time is up.

    Args:
        arms: what to run, by name.
        ratios: functions that return a ratio from what the arms of a round returned.
        seconds: no round begins later than this after the first round.
        least: number of rounds that are taken in any case.
        most: the most rounds.
        tell: called after each round with the number of rounds and the seconds so far.
        now: returns seconds.
    """
    rounds: list[dict[str, FOUND]] = []
    begun = None
    for found in take_rounds(arms):
        rounds.append(found)
        begun = now() if begun is None else begun
        spent = now() - begun if len(rounds) > 1 else 0.0
        tell(len(rounds), spent)
        up = spent >= seconds or len(rounds) >= most
        if len(rounds) >= min(least, most) and (up or _are_known(rounds, ratios)):
            break
    return rounds


def _are_known(
    rounds: Sequence[Mapping[str, FOUND]],
    ratios: Sequence[Callable[[Mapping[str, FOUND]], float]],
) -> bool:
    return all(summarise([ratio(each) for each in rounds]).within(KNOWN) for ratio in ratios)


def summarise(values: Sequence[float]) -> Median:
    """Return the median and its interval from order statistics, which assume no distribution.

    With fewer than six rounds, the lowest and highest values are the ends of the interval.

    Args:
        values: one per round, at least one.
    """
    ordered = sorted(values)
    count = len(ordered)
    reach = 0.98 * math.sqrt(count)  # 1.96 standard deviations of a binomial with p = 1/2
    low = max(0, math.floor(count / 2 - reach) - 1)
    high = min(count - 1, math.ceil(count / 2 + reach))
    return Median(statistics.median(ordered), ordered[low], ordered[high], count)
