"""Ratios of seconds, measured in interleaved rounds until their intervals are narrow enough."""

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

HALF_WIDTH = 0.01  # of the 95 % interval, relative to the ratio, at which measuring may stop
SECONDS = 600.0  # after which measuring stops, however wide the interval is
FEWEST = 16  # rounds before an interval is trusted
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

    @property
    def known(self) -> bool:
        """Whether the interval is narrow enough to stop."""
        return max(self.high - self.median, self.median - self.low) <= HALF_WIDTH * self.median


@dataclass(frozen=True)
class Ratio(Median):
    """A median ratio of seconds over rounds, with its 95 % interval.

    Attributes:
        seconds: median seconds of each arm in a round.
    """

    seconds: Mapping[str, float]


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


def measure(
    arms: Mapping[str, Callable[[], object]],
    ratio: Callable[[Mapping[str, float]], float],
    *,
    tell: Callable[[Ratio], None],
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.process_time,
) -> Ratio:
    """Time arms in interleaved rounds, until their ratio is known well enough.

    Args:
        arms: what to time, by name.
        ratio: returns the ratio of a round, given its arms' seconds.
        tell: called with the ratio known so far after each round, from the sixteenth on.
        seconds: wall seconds after which to stop in any case.
        clock: returns seconds; by default this process's CPU seconds.
    """

    def timed(arm: Callable[[], object]) -> Callable[[], float]:
        def run() -> float:
            start = clock()
            arm()
            return clock() - start

        return run

    rounds: list[dict[str, float]] = []
    endless = take_rounds({name: timed(arm) for name, arm in arms.items()})
    begun = time.perf_counter()
    for spent in endless:
        rounds.append(spent)
        if len(rounds) >= FEWEST:
            medians = {name: statistics.median(r[name] for r in rounds) for name in arms}
            found = Ratio(**asdict(summarise([ratio(r) for r in rounds])), seconds=medians)
            tell(found)
            if found.known or time.perf_counter() - begun > seconds:
                return found
    raise AssertionError("rounds have no end")


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
