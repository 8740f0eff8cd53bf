"""Rounds: all arms in each, ratios within one, and an interval that assumes nothing."""

from math import comb

import pytest

from selective_backprop.guide import _rounds as rounds
from selective_backprop.guide._rounds import measure, summarise, take_rounds


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


def test_each_round_runs_each_arm_once_in_an_order_of_its_own():
    ran = []
    arms = {name: lambda name=name: ran.append(name) or name.upper() for name in "abc"}
    endless = take_rounds(arms)
    assert [next(endless) for _ in range(12)] == [{"a": "A", "b": "B", "c": "C"}] * 12
    orders = ["".join(ran[i : i + 3]) for i in range(0, len(ran), 3)]
    assert orders[0] == "abc"  # before anything counts
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(set(orders)) > 3


def test_a_ratio_is_taken_within_each_round():
    clock = Clock()
    drift = [1.0]

    def slow() -> None:
        drift[0] *= 1.1  # a machine that gets slower has the same ratio all the time
        clock.spend(3 * drift[0])

    arms = {"slow": slow, "fast": lambda: clock.spend(drift[0])}
    told = []
    found = measure(
        arms, lambda spent: spent["slow"] / spent["fast"], tell=told.append, clock=clock, seconds=0
    )
    assert 3 / 1.1 <= found.low <= found.median <= found.high <= 3.3 * 1.001
    assert found.rounds == rounds.FEWEST
    assert told == [found]
    assert found.seconds["slow"] > found.seconds["fast"]


def test_rounds_go_on_until_the_ratio_is_known():
    clock, disturbed = Clock(), iter([2.0] * 12)
    arms = {"noisy": lambda: clock.spend(next(disturbed, 1.0)), "even": lambda: clock.spend(1.0)}
    found = measure(arms, lambda spent: spent["noisy"] / spent["even"], tell=id, clock=clock)
    assert found.known
    assert found.rounds > rounds.FEWEST


@pytest.mark.parametrize("count", [6, 16, 25, 64])
def test_the_interval_covers_the_median_19_times_in_20(count):
    found = summarise([float(value) for value in range(count)])
    low, high = int(found.low), int(found.high)
    assert found.median == (count - 1) / 2
    # the median lies between two order statistics as often as a binomial's half does
    inside = sum(comb(count, k) for k in range(low + 1, high + 1)) / 2**count
    assert inside >= 0.95
    assert low + high == count - 1  # as far from either end


def test_few_rounds_give_all_there_is():
    found = summarise([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high, found.rounds) == (2.0, 1.0, 3.0, 3)
    assert not found.known
    assert summarise([2.0]).known
