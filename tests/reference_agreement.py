"""Agreement of two scorings in plain Python."""

import math
from collections.abc import Sequence


def average_ranks(values: Sequence[float]) -> list[float]:
    """Each value's place among all of them, from 0; equal ones share the mean of their places."""
    return [
        sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values
    ]


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Pearson's correlation of the ranks; without spread 1 where neither has any, else 0."""
    first, second = average_ranks(list(one)), average_ranks(list(other))
    middle = (len(first) - 1) / 2
    covariance = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    spreads = [sum((rank - middle) ** 2 for rank in ranks) for ranks in (first, second)]
    if 0 in spreads:
        return float(spreads[0] == spreads[1])
    return covariance / math.sqrt(spreads[0] * spreads[1])


def shared_highest(one: Sequence[float], other: Sequence[float], count: int) -> float:
    """Which share of the `count` highest two scorings have in common, ties being shared out."""

    def places(values: Sequence[float]) -> list[float]:
        odds = []
        for value in values:
            above = sum(other > value for other in values)
            odds.append(min(1.0, max(0.0, (count - above) / values.count(value))))
        return odds

    return sum(map(min, places(list(one)), places(list(other)))) / count
