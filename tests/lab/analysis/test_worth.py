import math

import numpy as np
import pytest
from fixture_runs import fixture_seeds
from hypothesis import given
from hypothesis import strategies as st

from selective_backprop.lab.analysis.findings import findings
from selective_backprop.lab.analysis.grouping import gather
from selective_backprop.lab.analysis.statistics import paired_difference
from selective_backprop.lab.analysis.summary import comparison_table, to_markdown
from selective_backprop.lab.analysis.worth import worth


def at(strategy, cost, finals, **changes):
    return fixture_seeds(strategy, finals, cost=float(cost), config={"epochs": cost}, **changes)


def traditional(errors, seeds=3, spread=0.1):
    """Traditional training of several costs, with seeds on both sides of an error."""
    offsets = spread * (np.arange(seeds) - (seeds - 1) / 2)
    return [
        run
        for cost, error in errors.items()
        for run in at("traditional", cost, [error + offset for offset in offsets])
    ]


def worth_of(runs, axis="cost", name="other"):
    comparison = gather(runs)
    (group,) = [group for group in comparison.groups if group.name == name]
    return worth(group, comparison, axis)


CURVE = {2: 20.0, 4: 10.0, 8: 5.0}


@pytest.mark.parametrize(
    ("cost", "error", "times", "side"),
    [
        (4, 10.0, 1.0, ""),
        (4, 20.0, 0.5, ""),
        (2, 5.0, 4.0, ""),
        (2, 7.5, 4 * math.sqrt(2) / 2, ""),  # half of the way in error, and in logarithm of cost
        (4, 4.0, 2.0, ">"),
        (4, 30.0, 0.5, "<"),
    ],
)
def test_a_worth_is_read_off_traditionals_curve_or_is_a_bound(cost, error, times, side):
    found = worth_of([*traditional(CURVE), *at("other", cost, [error - 0.1, error, error + 0.1])])
    assert found.times == pytest.approx(times)
    assert found.side == side
    assert found.low <= times * (1 + 1e-9)
    assert found.high >= times * (1 - 1e-9)
    assert (found.low == 0) == (error >= 20.0)
    assert (found.high == math.inf) == (error <= 5.0)


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3), st.floats(5.5, 19.5))
def test_the_interval_leaves_one_out_where_the_difference_at_equal_cost_is_resolved(noise, error):
    runs = [*traditional(CURVE), *at("other", 4, [error + each for each in noise])]
    found = worth_of(runs)
    groups = {(group.name, group.length.value): group for group in gather(runs).groups}
    verdict = paired_difference(groups["other", 4.0], groups["traditional", 4.0]).against()
    assert (verdict == "lower") == (found.low > 1 + 1e-6)
    assert (verdict == "higher") == (found.high < 1 - 1e-6)


def test_where_seeds_agree_the_interval_is_narrow_though_the_seeds_themselves_differ():
    runs = [*traditional(CURVE, spread=2.0), *at("other", 2, [8.0, 10.0, 12.0])]
    found = worth_of(runs)
    assert (found.times, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert worth_of([*runs[:-3], *at("other", 2, [12.0, 10.0, 8.0])]).low < 1.6


def test_the_least_length_counts_where_traditional_gets_worse_again():
    curve = {2: 20.0, 4: 10.0, 8: 12.0}
    assert worth_of([*traditional(curve), *at("other", 2, [11.0] * 3)]).times < 2.0


def test_worth_in_seconds_is_read_along_seconds():
    runs = [
        *at("traditional", 2, [20.0, 20.1], seconds=20.0),
        *at("traditional", 4, [10.0, 10.1], seconds=40.0),
        *at("other", 2, [10.0, 10.1], seconds=10.0),
    ]
    assert worth_of(runs).times == pytest.approx(2.0)
    assert worth_of(runs, "seconds").times == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        (traditional({4: 10.0}), "one length"),
        (traditional(CURVE, seeds=1)[1:] + traditional(CURVE)[2::3], "no seed is shared"),
        (traditional({4: 10.0, 8: math.nan}), "diverged"),
    ],
)
def test_where_it_cannot_be_said_the_reason_is(runs, reason):
    found = worth_of([*runs, *at("other", 4, [9.0, 9.0])])
    assert reason in found.reason
    assert found.text == "–"


def test_one_seed_has_a_worth_and_no_interval():
    found = worth_of([*traditional(CURVE, seeds=1), *at("other", 4, [5.0])])
    assert found.text == "2.00×"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ([9.9, 10.0, 10.1], "2.00× (2.00 to 2.00)"),
        ([3.9, 4.0, 4.1], ">4.00× (at least 4.00)"),
        ([29.9, 30.0, 30.1], "<1.00× (at most 1.00)"),
        ([0.0, 10.0, 90.0], "<1.00× (unresolved)"),
    ],
)
def test_a_worth_is_written_with_its_interval(error, text):
    assert worth_of([*traditional(CURVE), *at("other", 2, error)]).text == text


def test_a_comparisons_headline_and_table_say_the_worth_and_its_markdown_for_pages_does_not():
    runs = [
        *traditional(CURVE),
        *at("good", 8, [3.9, 4.0, 4.1]),  # better than all of traditional's curve
        *at("good", 6, [3.9, 4.0, 4.1]),  # a second bound, which is left out
        *at("good", 4, [4.9, 5.0, 5.1]),
        *at("bad", 8, [9.9, 10.0, 10.1]),
    ]
    comparison = gather(runs)
    table = comparison_table(comparison)
    assert table.title.splitlines()[1].endswith(
        "good @ 8 more than 1.00× (at least 1.00) and good @ 4 2.00× (at least 2.00); "
        "bad @ 8 0.50× (0.50 to 0.50)."
    )
    assert "| good @ 4 | " in table.to_markdown()
    assert "| 2.00× (at least 2.00) |" in table.to_markdown()
    assert "orth" not in to_markdown(comparison)
    assert next(iter(findings(comparison).values())) in table.title


def test_with_one_length_the_headline_says_why_nothing_can_be_said():
    comparison = gather([*traditional({4: 10.0}), *at("other", 4, [9.0, 9.0, 9.0])])
    table = comparison_table(comparison)
    assert "cannot be said" in table.title
    assert "one length" in table.title
    assert "worth" not in table.to_text().splitlines()[3]
