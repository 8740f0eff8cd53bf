"""Questions asked of evaluations."""

import math

import numpy as np
import pytest
from fixture_runs import fixture_point, fixture_run, fixture_seeds
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import selective_backprop as sb
from selective_backprop_lab.analysis.queries import (
    best_traditional,
    final,
    final_difference,
    mean_error,
    passes_to,
    reached,
    span,
)
from selective_backprop_lab.records.frame import frame_of

ERRORS = st.floats(0.01, 100)


@pytest.mark.parametrize(
    ("count", "last"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (30, 3), (31, 4)]
)
def test_a_final_error_is_the_mean_of_the_last_tenth_at_least_one(count, last):
    errors = [float(100 + i * i) for i in range(count)]
    found = final(frame_of([fixture_run(errors=errors)]))
    assert found.item() == pytest.approx(sum(errors[-last:]) / last)


def test_a_final_error_is_not_the_best_one_and_a_run_that_diverged_has_none():
    assert final(frame_of([fixture_run(errors=[50.0, 1.0, 5.0])])).item() == 5.0
    diverged = fixture_run(errors=[5.0] * 19 + [math.nan])
    assert math.isnan(final(frame_of([diverged])).item())
    with pytest.raises(sb.RecordError, match="no evaluation"):
        final(frame_of([fixture_run(upto=0)]))


def test_a_difference_is_taken_seed_by_seed_over_shared_seeds():
    plain, other, apart = (
        frame_of(runs)
        for runs in (
            fixture_seeds("traditional", [10.0, 20.0, 30.0, 99.0]),
            fixture_seeds("other", [9.0, 18.0, 29.0]),
            [fixture_run("other", seed=9)],
        )
    )
    found = final_difference(other, plain)
    interval = stats.ttest_1samp([-1.0, -2.0, -1.0], 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert final_difference(apart, plain).seeds == 0


@given(st.lists(ERRORS, min_size=1, max_size=12), ERRORS)
def test_a_target_is_reached_at_the_first_evaluation_that_shows_it(errors, target):
    run = fixture_run(errors=errors)
    plainly = [point.seconds for point in run.points if point.test_error <= target]
    assert reached(frame_of([run]), target).item() == min(plainly, default=math.inf)


def test_time_is_read_from_the_axis_asked_for_and_never_between_evaluations():
    run = frame_of([fixture_run(errors=[50.0, 20.0, 10.0, 5.0], cost=8.0, seconds=40.0)])
    found = [reached(run, 15.0, axis).item() for axis in ("seconds", "cost", "updates")]
    assert found == [30.0, 6.0, 75]


@given(st.lists(st.tuples(st.floats(0.1, 5), ERRORS), min_size=2, max_size=8), st.data())
def test_the_mean_error_on_the_way_is_the_area_under_the_curve(steps, data):
    places, errors = np.cumsum([step for step, _ in steps]), [error for _, error in steps]
    ends = st.floats(float(places[0]), float(places[-1]))
    start, end = sorted([data.draw(ends), data.draw(ends)])
    run = fixture_run(errors=errors)
    points = tuple(
        fixture_point(point.progress, error, cost=float(place))
        for point, place, error in zip(run.points, places, errors, strict=True)
    )
    run = type(run)(header=run.header, points=points, end=run.end)
    found = mean_error(frame_of([run]), start, end).item()
    if end - start < 1e-6:
        assert math.isnan(found) or min(errors) <= found <= max(errors)
        return
    fine = np.interp(np.linspace(start, end, 20_001), places, errors)
    assert found == pytest.approx(float((fine[1:] + fine[:-1]).mean() / 2), rel=1e-2)


def test_a_span_that_the_run_does_not_cover_has_no_mean_error():
    run = frame_of([fixture_run(errors=[40.0, 20.0], cost=2.0)])
    for start, end in ((0.5, 2.0), (1.0, 2.5), (2.0, 2.0)):
        assert math.isnan(mean_error(run, start, end).item())


def test_the_common_span_is_what_all_runs_cover():
    def spanned(*runs):
        return span(*(frame_of([run]) for run in runs))

    runs = [fixture_run(errors=[9.0] * 4, cost=4.0), fixture_run(errors=[9.0] * 5, cost=10.0)]
    assert spanned(*runs) == (2.0, 4.0)
    apart = [fixture_run(errors=[9.0] * 2, cost=1.0), fixture_run(errors=[9.0], cost=10.0)]
    assert spanned(*apart) == (0.0, 0.0)


def lengths(arm, cost, finals, **changes):
    return fixture_seeds(arm, finals, cost=cost, config={"budget": cost, "epochs": None}, **changes)


def rival(runs):
    found = frame_of(runs)
    return best_traditional(found, found[found.arm == "top-k"])


def test_the_rival_is_the_best_traditional_training_that_cost_no_more():
    # On wrong labels the longest traditional training is not the best.
    found = rival(
        lengths("traditional", 10.0, [6.0, 6.2, 6.1])
        + lengths("traditional", 5.0, [5.0, 5.3, 5.1])
        + lengths("traditional", 20.0, [1.0, 1.0, 1.0])
        + lengths("top-k", 10.0, [4.0, 4.2, 4.1])
    )
    assert {*found.length} == {5.0}
    assert {*found.seed} == {0, 1, 2}


def test_costs_that_differ_by_a_last_batch_are_equal():
    own = lengths("top-k", 10.0, [4.0, 4.2, 4.1])
    assert len(rival(lengths("traditional", 10.2, [5.0, 5.3, 5.1]) + own))
    assert rival(lengths("traditional", 10.6, [5.0, 5.3, 5.1]) + own).empty


def test_unfinished_runs_do_not_count():
    plain = lengths("traditional", 10.0, [5.0, 5.0, 5.0])
    plain += lengths("traditional", 5.0, [1.0, 1.0, 1.0], finished=False)
    assert {*rival(plain + lengths("top-k", 10.0, [4.0, 4.0, 4.0])).length} == {10.0}


def test_a_length_of_which_a_run_diverged_is_no_rival():
    plain = lengths("traditional", 10.0, [5.0, 5.0, 5.0])
    plain += lengths("traditional", 5.0, [1.0, math.nan, 1.0])
    assert {*rival(plain + lengths("top-k", 10.0, [4.0, 4.0, 4.0])).length} == {10.0}


def test_a_lucky_seed_is_no_rival_of_lengths_that_share_more_seeds():
    usual = lengths("traditional", 10.0, [5.0, 5.2, 5.1]) + lengths("top-k", 10.0, [4.0, 4.2, 4.1])
    config = {"budget": 5.0, "epochs": None}
    for seed in (0, 7):
        lucky = fixture_run(seed=seed, errors=[1.0], cost=5.0, config=config)
        assert {*rival([*usual, lucky]).length} == {10.0}


def test_a_seed_that_the_arm_does_not_have_decides_nothing():
    plain = lengths("traditional", 10.0, [5.0, 5.2, 5.1])
    short = lengths("traditional", 5.0, [6.0, 6.2, 6.1, 0.1, 0.1])
    found = rival(plain + short + lengths("top-k", 10.0, [4.0, 4.2, 4.1]))
    assert {*found.length} == {10.0}


def plain_curve(**ends):
    return frame_of(
        run
        for length, end in ends.items()
        for run in lengths("traditional", float(length[1:]), [end - 0.5, end + 0.5])
    )


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (9.0, 2.0),  # the shortest ends that low already
        (8.0, 2.0),
        (6.0, 2.0 * 4.0**0.5),  # half-way down, half-way along the logarithm
        (5.0, 2.0 * 4.0**0.75),
        (4.0, 8.0),
        (3.9, None),  # the longest ends higher again
    ],
)
def test_the_passes_to_an_error_are_read_from_the_traditional_lengths(error, passes):
    found = passes_to(plain_curve(_2=8.0, _8=4.0, _32=7.0), error)
    assert found == (None if passes is None else pytest.approx(passes))


def test_no_traditional_training_takes_no_passes_and_one_that_diverged_is_left_out():
    assert passes_to(frame_of(lengths("top-k", 10.0, [4.0])), 5.0) is None
    unfinished = lengths("traditional", 2.0, [1.0], finished=False)
    assert passes_to(frame_of(unfinished), 5.0) is None
    found = plain_curve(_2=8.0, _4=math.nan, _8=4.0)
    assert passes_to(found, 6.0) == pytest.approx(4.0)
