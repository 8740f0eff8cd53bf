"""Ratios of process CPU time, measured in interleaved rounds until they are known well enough."""

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

HALF_WIDTH = 0.01  # of the 95 % interval, relative to the ratio: then it is known well enough
SECONDS = 600.0  # after which a gate is judged by what is known
FEWEST = 16  # rounds before an interval is believed


@dataclass(frozen=True)
class Ratio:
    """A median ratio over rounds, with its 95 % interval.

    Attributes:
        median: of the rounds' ratios.
        low: lower end of the interval.
        high: its upper end.
        rounds: how many there were.
        seconds: median process CPU seconds of each arm in a round.
    """

    median: float
    low: float
    high: float
    rounds: int
    seconds: Mapping[str, float]

    @property
    def known(self) -> bool:
        """Whether the interval is narrow enough to stop."""
        return max(self.high - self.median, self.median - self.low) <= HALF_WIDTH * self.median


def measure(
    arms: Mapping[str, Callable[[], object]],
    ratio: Callable[[Mapping[str, float]], float],
    *,
    tell: Callable[[Ratio], None],
    seconds: float = SECONDS,
) -> Ratio:
    """Time all arms once per round, in a new order each round, until the ratio is known.

    A ratio is taken within each round, so that a machine that drifts from one round to the next
    does not matter, and the median over rounds is reported, so that a round which something
    else disturbed does not either.

    Args:
        arms: what to time, by name; each is run once before anything counts.
        ratio: the ratio of a round, from its arms' CPU seconds.
        tell: told of what is known after each round.
        seconds: of wall time after which to stop all the same.
    """
    shuffle = random.Random(0).shuffle
    for arm in arms.values():
        arm()
    rounds: list[dict[str, float]] = []
    begun = time.perf_counter()
    while True:
        order = list(arms)
        shuffle(order)
        spent: dict[str, float] = {}
        for name in order:
            start = time.process_time()
            arms[name]()
            spent[name] = time.process_time() - start
        rounds.append(spent)
        if len(rounds) < FEWEST:
            continue
        found = summarise([ratio(spent) for spent in rounds], rounds)
        tell(found)
        if found.known or time.perf_counter() - begun > seconds:
            return found


def summarise(ratios: Sequence[float], rounds: Sequence[Mapping[str, float]]) -> Ratio:
    """Return the median and its interval by order statistics, which assumes no distribution."""
    ordered = sorted(ratios)
    count = len(ordered)
    reach = 0.98 * math.sqrt(count)  # 1.96 standard deviations of a binomial's half
    low = max(0, math.floor(count / 2 - reach) - 1)
    high = min(count - 1, math.ceil(count / 2 + reach))
    seconds = {name: statistics.median(spent[name] for spent in rounds) for name in rounds[0]}
    return Ratio(statistics.median(ordered), ordered[low], ordered[high], count, seconds)
