import math
from dataclasses import replace

import numpy as np
import pytest
from fixture_runs import fixture_seeds
from hypothesis import given
from hypothesis import strategies as st

from selective_backprop_lab.analysis.grouping import gather
from selective_backprop_lab.analysis.statistics import final_error, paired_difference
from selective_backprop_lab.analysis.summary import comparison_table, to_markdown
from selective_backprop_lab.analysis.verdict import Verdict
from selective_backprop_lab.analysis.worth import Worth, mean_worth, read_off, worth


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
        (2, math.sqrt(50), 4 * math.sqrt(2) / 2, ""),  # half of the way, in both logarithms
        (4, 4.0, 2.0, ">"),
        (4, 30.0, 0.5, "<"),
    ],
)
def test_a_worth_is_read_off_traditionals_curve_or_is_a_bound(cost, error, times, side):
    found = worth_of([*traditional(CURVE), *at("other", cost, [error - 0.1, error, error + 0.1])])
    assert found.times == pytest.approx(times, rel=1e-4)
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
        *at("good", 6, [3.9, 4.0, 4.1]),  # a bound too; what is none is said
        *at("good", 4, [4.9, 5.0, 5.1]),
        *at("bad", 8, [9.9, 10.0, 10.1]),
    ]
    comparison = gather(runs)
    table = comparison_table(comparison)
    assert table.title.splitlines()[-1].endswith(
        "good @ 4 2.00× (at least 2.00); bad @ 8 0.50× (0.50 to 0.50)."
    )
    assert "| good @ 4 | " in table.to_markdown()
    assert "| 2.00× (at least 2.00) |" in table.to_markdown()
    assert "orth" not in to_markdown(comparison)


def test_with_one_length_the_headline_says_why_nothing_can_be_said():
    comparison = gather([*traditional({4: 10.0}), *at("other", 4, [9.0, 9.0, 9.0])])
    table = comparison_table(comparison)
    assert "cannot be said" in table.title
    assert "one length" in table.title
    assert "worth" not in table.to_text().splitlines()[3]


COSTS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


def seeds_of(errors, spread=0.02, seeds=5):
    """Errors by seed and length, of which a seed's are all off by the same factor."""
    return np.outer(1 + spread * (np.arange(seeds) - (seeds - 1) / 2), errors)


def off_a_curve(errors, cost, error, *, costs=COSTS, spread=0.02):
    own = seeds_of(errors, spread)
    return read_off(costs, own, cost, seeds_of([error], spread)[:, 0], range(len(own)))


def test_traditional_training_is_worth_one_at_each_length_even_where_it_gets_worse():
    worsening = [20.0, 10.0, 6.0, 7.0, 9.0, 12.0]
    for curve in (worsening, [20.0, 10.0, 6.0, 5.0, 4.5, 4.0]):
        for cost, error in zip(COSTS, curve, strict=True):
            found = off_a_curve(curve, cost, error)
            assert found.times == pytest.approx(1.0)
            assert found.low <= 1 + 1e-9
            assert found.high >= 1 - 1e-9


def test_where_traditional_gets_worse_a_worth_is_by_the_first_length_that_ends_as_low():
    # At 32 it ends where it did between 1 and 2; ours ends at 16 where it did at 2.
    curve = [20.0, 10.0, 6.0, 7.0, 10.0, 14.0]
    first = 2 ** (math.log(20 / 14) / math.log(2))
    assert off_a_curve(curve, 32.0, 10.0).times == pytest.approx(2.0 / first, rel=1e-3)
    # Lower than it ever gets: as long as the longest, and more, for what it has at 1.43.
    beyond = off_a_curve(curve, 32.0, 5.0)
    assert beyond.side == ">"
    assert beyond.times == pytest.approx(32.0 / first, rel=1e-3)
    assert (beyond.low > 1, beyond.high) == (True, math.inf)


def test_what_cannot_be_told_from_the_best_length_may_be_worth_any_number_of_times():
    curve = [20.0, 10.0, 6.0, 7.0, 10.0, 14.0]
    found = read_off(COSTS, seeds_of(curve), 2.0, np.array([5.9, 6.5, 6.0, 6.3, 6.2]), range(5))
    assert found.side == ""
    assert found.high == math.inf
    assert found.low > 1.5


def test_half_the_error_of_a_root_law_is_worth_four_in_any_unit():
    for unit in (1.0, 0.37):
        curve = 10 / np.sqrt(COSTS)
        found = off_a_curve(curve, 4 * unit, 2.5, costs=COSTS * unit)
        assert found.times == pytest.approx(4.0)
        assert (found.low, found.high) == pytest.approx((4.0, 4.0), rel=1e-2)


def test_outside_its_lengths_traditional_training_is_as_at_the_nearer_end():
    curve = 10 / np.sqrt(COSTS)
    assert off_a_curve(curve, 64.0, 10 / math.sqrt(32)).times == pytest.approx(0.5)
    assert off_a_curve(curve, 0.5, 5.0).times == pytest.approx(8.0)


def test_an_error_of_nought_is_a_bound():
    found = off_a_curve([4.0, 2.0, 1.0, 0.5, 0.2, 0.1], 4.0, 0.0)
    assert (found.side, found.times) == (">", pytest.approx(8.0))


def test_the_order_of_lengths_does_not_matter():
    curve = seeds_of(10 / np.sqrt(COSTS))
    one, other = (
        read_off(COSTS[turn], curve[:, turn], 4.0, np.full(5, 3.0), range(5))
        for turn in (slice(None), slice(None, None, -1))
    )
    assert one == other


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.98, 1.2, "HOLDS"), (0.5, 0.96, "FAILS"), (0.5, 1.2, "OPEN"), (0.0, math.inf, "OPEN")],
)
def test_a_limit_is_judged_by_the_whole_interval(low, high, verdict):
    assert Worth(1.0, low=low, high=high).is_at_least(0.97) is Verdict[verdict]


def test_the_mean_is_geometric_with_an_interval_over_the_seeds_that_all_share():
    def told(log, spread, seeds=range(5)):
        parts = {seed: math.exp(log + spread * (seed - 2)) for seed in seeds}
        return Worth(math.exp(log), low=0.1, high=10.0, without=parts)

    found = mean_worth([told(math.log(4), 0.05), told(0.0, 0.01)])
    assert found.times == pytest.approx(2.0)
    assert found.low < 2.0 < found.high
    # Pseudo-values 4 * 0.03 apart: t(4) * 0.12 * sqrt(2.5) / sqrt(5).
    assert math.log(found.high / 2.0) == pytest.approx(2.776445 * 0.12 * math.sqrt(0.5))
    # What one seed adds to one it takes from the other.
    level = mean_worth([told(math.log(4), 0.05), told(0.0, -0.05)])
    assert (level.low, level.high) == pytest.approx((2.0, 2.0))
    assert set(mean_worth([told(0.0, 0.05), told(0.0, 0.05, range(1, 4))]).without) == {1, 2, 3}


def test_the_mean_with_a_bound_is_one_and_no_number_is_lost():
    parts = dict.fromkeys(range(5), 2.0)
    inside = Worth(2.0, "", 1.5, 2.5, without=parts)
    above, below = (replace(inside, side=side) for side in "><")
    found = mean_worth([inside, above, Worth(reason="it was not run")])
    assert (found.text, found.high) == (">2.00× (at least 2.00)", math.inf)
    assert mean_worth([inside, below]).text == "<2.00× (at most 2.00)"
    assert mean_worth([above, below]).text == "2.00× (unresolved)"
    assert mean_worth([Worth(reason="it was not run")]).text == "–"


def test_a_jackknifes_interval_holds_the_true_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        curve = 10 / np.sqrt(COSTS) * np.exp(0.03 * rng.standard_normal((5, len(COSTS))))
        errors = 2.5 * np.exp(0.03 * rng.standard_normal((3, 5)))
        found = mean_worth([read_off(COSTS, curve, 4.0, each, range(5)) for each in errors])
        held += found.low <= 4.0 <= found.high
    assert held >= 0.88 * 200


def test_worth_is_by_the_measure_that_is_asked_for():
    runs = [*traditional(CURVE), *at("other", 4, [9.0, 9.0, 9.0])]
    comparison = gather(runs)
    (group,) = [group for group in comparison.groups if group.name == "other"]
    found = worth(group, comparison, measure=lambda run: 10 + final_error(run))
    assert found.times == pytest.approx(2 ** (math.log(20 / 19) / math.log(20 / 15)), rel=1e-3)
    assert found.times > 1.01 * worth(group, comparison).times
