import math
import statistics as plain

import numpy as np
import pytest
from fixture_runs import fixture_point, fixture_run, fixture_seeds
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import selective_backprop as sb
from selective_backprop_lab.analysis.grouping import gather
from selective_backprop_lab.analysis.statistics import (
    common_span,
    curve,
    estimate,
    final_error,
    leaders,
    mean_error,
    paired_difference,
    ranking,
    speedups,
    time_to,
)

ERRORS = st.floats(0.01, 100)


def arms_of(*runs):
    return {arm.name: arm for arm in gather([run for group in runs for run in group]).groups}


@pytest.mark.parametrize(
    ("count", "last"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (30, 3), (31, 4)]
)
def test_a_final_error_is_the_mean_of_the_last_tenth_at_least_one(count, last):
    errors = [float(100 + i * i) for i in range(count)]
    run = fixture_run(errors=errors)
    assert final_error(run) == pytest.approx(sum(errors[-last:]) / last)


def test_a_final_error_is_not_the_best_one():
    assert final_error(fixture_run(errors=[50.0, 1.0, 5.0])) == 5.0


def test_a_run_without_evaluation_has_no_final_error():
    with pytest.raises(sb.RecordError, match="no evaluation"):
        final_error(fixture_run(upto=0))


@given(st.lists(ERRORS, min_size=3, max_size=9))
def test_an_interval_is_students_over_seeds(values):
    found = estimate(values)
    assert found.mean == pytest.approx(sum(values) / len(values))
    assert found.seeds == len(values)
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    assert found.half_width == pytest.approx(
        stats.t.ppf(0.975, len(values) - 1) * spread, rel=1e-6, abs=1e-9
    )


def test_below_three_seeds_there_is_no_spread_and_of_none_no_mean():
    for values in ([3.0], [3.0, 3.0]):
        few = estimate(values)
        assert (few.mean, few.seeds) == (3.0, len(values))
        assert math.isnan(few.half_width)
        assert few.against(2.0) == "untold"
    none = estimate([])
    assert math.isnan(none.mean)
    assert none.seeds == 0


def test_no_interval_is_narrower_than_what_can_be_seen():
    assert estimate([3.0, 3.0, 3.0], 0.28).half_width == 0.28
    assert estimate([3.0, 4.0, 5.0], 0.28) == estimate([3.0, 4.0, 5.0])


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_a_run_that_diverged_leaves_no_interval(lost):
    assert math.isnan(estimate([1.0, 2.0, lost]).half_width)


def test_a_difference_is_taken_seed_by_seed_over_shared_seeds():
    arms = arms_of(
        fixture_seeds("traditional", [10.0, 20.0, 30.0, 99.0]),
        fixture_seeds("other", [9.0, 18.0, 29.0]),
    )
    found = paired_difference(arms["other"], arms["traditional"])
    difference = np.array([-1.0, -2.0, -1.0])
    assert found.mean == pytest.approx(difference.mean())
    test = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((test.low, test.high))


def test_arms_without_a_shared_seed_have_no_difference():
    arms = arms_of([fixture_run(seed=0)], [fixture_run("other", seed=1)])
    assert paired_difference(arms["other"], arms["traditional"]).seeds == 0


@given(st.lists(ERRORS, min_size=1, max_size=12), ERRORS)
def test_a_target_is_reached_at_the_first_evaluation_that_shows_it(errors, target):
    run = fixture_run(errors=errors)
    plainly = None
    for point in reversed(run.points):
        if point.test_error <= target:
            plainly = point.seconds
    assert time_to(run, target) == plainly


def test_time_is_read_from_the_axis_asked_for_and_never_between_evaluations():
    run = fixture_run(errors=[50.0, 20.0, 10.0, 5.0], cost=8.0, seconds=40.0)
    assert time_to(run, 15.0) == 30.0
    assert time_to(run, 15.0, "cost") == 6.0
    assert time_to(run, 15.0, "updates") == 75
    assert time_to(run, 4.9) is None


def test_a_speed_up_is_traditionals_median_over_the_arms():
    # Traditional ends at 5 %, so that the targets are 5.5, 6 and 7 %.
    slow = [[50.0, 20.0, 5.0], [50.0, 20.0, 5.0], [50.0, 20.0, 5.0]]
    fast = [[50.0, 5.4, 5.4], [6.5, 5.4, 5.4], [50.0, 20.0, 6.5]]
    arms = arms_of(
        [fixture_run("traditional", i, e, seconds=30.0) for i, e in enumerate(slow)],
        [fixture_run("other", i, e, seconds=30.0) for i, e in enumerate(fast)],
    )
    to_11, to_12, to_14 = speedups(arms["other"], arms["traditional"])
    assert [s.target for s in (to_11, to_12, to_14)] == pytest.approx([5.5, 6.0, 7.0])
    # 30 s against the medians of (20, 20, never), (20, 20, never) and (20, 10, 30).
    assert [s.ratio for s in (to_11, to_12, to_14)] == pytest.approx([1.5, 1.5, 1.5])
    assert (to_11.text, to_14.text) == ("1.50× (2 of 3)", "1.50×")
    assert to_11.with_range == "1.50× (never to 1.50)"
    assert to_14.with_range == "1.50× (1.00 to 3.00)"


@pytest.mark.parametrize(
    ("finals", "text"),
    [
        ([9.0, 9.0, 9.0], "never"),
        ([5.0, 9.0, 9.0], "never (1 of 3)"),
        ([5.0, 9.0], "never (1 of 2)"),
        ([5.0, 5.0, 9.0], "1.00× (2 of 3)"),
    ],
)
def test_half_the_seeds_or_more_that_never_get_there_make_a_never(finals, text):
    arms = arms_of(
        fixture_seeds("traditional", [5.0] * len(finals)), fixture_seeds("other", finals)
    )
    assert speedups(arms["other"], arms["traditional"])[0].text == text


def test_where_traditional_misses_its_own_target_there_is_no_speed_up():
    arms = arms_of(
        fixture_seeds("traditional", [1.0, 9.0, 9.0]), fixture_seeds("other", [1.0, 1.0, 1.0])
    )
    (speedup,) = speedups(arms["other"], arms["traditional"], factors=[0.9])
    assert (speedup.ratio, speedup.text) == (None, "–")


def test_an_arm_without_finished_runs_has_no_speed_up():
    arms = arms_of([fixture_run()], [fixture_run("other", finished=False)])
    assert {s.text for s in speedups(arms["other"], arms["traditional"])} == {"–"}


@given(st.lists(st.tuples(st.floats(0.1, 5), ERRORS), min_size=2, max_size=8), st.data())
def test_the_mean_error_on_the_way_is_the_area_under_the_curve(steps, data):
    places = np.cumsum([step for step, _ in steps])
    errors = [error for _, error in steps]
    ends = st.floats(float(places[0]), float(places[-1]))
    start, end = sorted([data.draw(ends), data.draw(ends)])
    run = fixture_run(errors=errors)
    points = [
        fixture_point(point.progress, error, cost=float(place))
        for point, place, error in zip(run.points, places, errors, strict=True)
    ]
    run = type(run)(header=run.header, points=tuple(points), end=run.end)
    found = mean_error(run, start, end)
    if end - start < 1e-6:
        assert math.isnan(found) or min(errors) <= found <= max(errors)
        return
    # Plainly: the mean over a fine grid.
    grid = np.linspace(start, end, 20_001)
    fine = np.interp(grid, places, errors)
    assert found == pytest.approx(float((fine[1:] + fine[:-1]).mean() / 2), rel=1e-2)


def test_a_span_that_the_run_does_not_cover_has_no_mean_error():
    run = fixture_run(errors=[40.0, 20.0], cost=2.0)
    for start, end in ((0.5, 2.0), (1.0, 2.5), (2.0, 2.0)):
        assert math.isnan(mean_error(run, start, end))


def test_the_common_span_is_what_all_runs_cover():
    runs = [fixture_run(errors=[9.0] * 4, cost=4.0), fixture_run(errors=[9.0] * 5, cost=10.0)]
    assert common_span(runs) == (2.0, 4.0)
    assert common_span([]) == (0.0, 0.0)
    apart = [fixture_run(errors=[9.0] * 2, cost=1.0), fixture_run(errors=[9.0], cost=10.0)]
    assert common_span(apart) == (0.0, 0.0)


@given(st.lists(st.lists(ERRORS, min_size=4, max_size=4), min_size=3, max_size=5))
def test_a_curve_is_the_mean_and_interval_at_each_evaluation(seeds):
    runs = [fixture_run(seed=i, errors=e, cost=10.0 + i) for i, e in enumerate(seeds)]
    found = curve(runs, "cost")
    columns = list(zip(*seeds, strict=True))
    assert found.mean == pytest.approx([plain.fmean(column) for column in columns])
    assert found.low == pytest.approx([estimate(column).low for column in columns])
    assert found.high == pytest.approx([estimate(column).high for column in columns])
    mean_cost = 10.0 + (len(seeds) - 1) / 2
    assert found.x == pytest.approx([mean_cost * share for share in (0.25, 0.5, 0.75, 1)])


def test_seeds_evaluated_at_other_moments_meet_at_equal_progress():
    coarse = fixture_run(seed=0, errors=[40.0, 20.0])
    fine = fixture_run(seed=1, errors=[60.0, 50.0, 30.0, 10.0])
    found = curve([coarse, fine], "cost")
    assert found.x == pytest.approx([5.0, 10.0])
    assert found.mean == pytest.approx([45.0, 15.0])


def test_rounding_of_progress_loses_no_evaluation():
    run = fixture_run(errors=[9.0, 5.0])
    last = fixture_point(1 - 1e-12, 5.0)
    almost = type(run)(header=run.header, points=(run.points[0], last), end=run.end)
    assert len(curve([run, almost], "cost").x) == 2


def test_runs_without_evaluations_have_no_curve():
    assert curve([fixture_run(upto=0)], "cost").x == ()
    assert curve([], "cost").x == ()


def crowd():
    """Four arms of two lengths, one of them unfinished, and one of the short length alone."""
    finals = {"traditional": 5.0, "good": 3.0, "bad": 9.0, "best": 2.0}
    runs = [fixture_run(arm, errors=[50.0, error]) for arm, error in finals.items()]
    short = {"cost": 5.0, "config": {"epochs": 5}}
    runs += [fixture_run(arm, errors=[50.0, 1.0], **short) for arm in ("good", "brief")]
    return gather([*runs, fixture_run("late", upto=1, finished=False)])


def test_arms_are_ranked_by_the_final_error_of_their_longest_runs_and_unfinished_ones_last():
    *finished, last = [arm.label for arm in ranking(crowd())]
    assert finished == ["brief @ 5", "best @ 10", "good @ 10", "traditional @ 10", "bad @ 10"]
    assert last == "late @ 10"


def test_an_arm_whose_longest_runs_are_unfinished_is_ranked_by_its_finished_ones():
    short = {"cost": 5.0, "config": {"epochs": 5}}
    runs = [fixture_run(finished=False, upto=1), fixture_run(errors=[4.0], **short)]
    assert [arm.label for arm in ranking(gather(runs))] == ["traditional @ 5"]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, ["traditional @ 10"]),
        (2, ["traditional @ 10", "best @ 10", "brief @ 5"]),
        (9, ["traditional @ 10", "bad @ 10", "best @ 10", "good @ 10", "late @ 10", "brief @ 5"]),
    ],
)
def test_leaders_are_traditional_and_those_that_end_lowest_in_the_order_of_the_arms(
    count, expected
):
    assert [arm.label for arm in leaders(crowd(), count)] == expected
