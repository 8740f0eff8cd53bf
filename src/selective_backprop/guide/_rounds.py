"""Ratios of seconds, measured in interleaved rounds until they are known well enough."""

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

HALF_WIDTH = 0.01  # of the 95 % interval, relative to the ratio: then it is known well enough
SECONDS = 600.0  # after which a ratio is taken as what is known
FEWEST = 16  # rounds before an interval is believed
FOUND = TypeVar("FOUND")


@dataclass(frozen=True)
class Median:
    """A median over rounds, with its 95 % interval.

    Attributes:
        median: of the rounds' values.
        low: lower end of the interval.
        high: its upper end.
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

    Ratios are taken within a round, so that a machine that drifts from one round to the next does
    not matter, and their median over rounds, so that a round which something else disturbed does
    not either.

    Args:
        arms: what to run, by name; each is run once before anything counts.

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
    """Time arms in interleaved rounds, until their ratio is known.

    Args:
        arms: what to time, by name.
        ratio: the ratio of a round, from its arms' seconds.
        tell: told of what is known after each round.
        seconds: of wall time after which to stop all the same.
        clock: returns seconds; by default those of this process's CPU time.
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
    """Return the median and its interval by order statistics, which assumes no distribution.

    Fewer than six rounds have no such interval; the lowest and the highest stand for it.

    Args:
        values: one per round, at least one.
    """
    ordered = sorted(values)
    count = len(ordered)
    reach = 0.98 * math.sqrt(count)  # 1.96 standard deviations of a binomial's half
    low = max(0, math.floor(count / 2 - reach) - 1)
    high = min(count - 1, math.ceil(count / 2 + reach))
    return Median(statistics.median(ordered), ordered[low], ordered[high], count)
