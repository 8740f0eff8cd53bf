"""Rounds: all arms in each, ratios within one, and an interval that assumes nothing."""

from math import comb

import pytest

from selective_backprop_lab.bench.rounds import summarise, take_rounds


def test_each_round_runs_each_arm_once_in_an_order_of_its_own():
    ran = []
    arms = {name: lambda name=name: ran.append(name) or name.upper() for name in "abc"}
    endless = take_rounds(arms)
    assert [next(endless) for _ in range(12)] == [{"a": "A", "b": "B", "c": "C"}] * 12
    orders = ["".join(ran[i : i + 3]) for i in range(0, len(ran), 3)]
    assert orders[0] == "abc"  # before anything counts
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(set(orders)) > 3


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
    assert not found.within(0.49)
    assert found.within(0.5)
    assert summarise([2.0]).within(0.0)
