"""Questions asked of evaluations."""

import math
import statistics as plain
from dataclasses import replace

import numpy as np
import pytest
from fixture_runs import fixture_comparison, fixture_point, fixture_run, fixture_seeds
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import selective_backprop as sb
from selective_backprop_lab.analysis.estimates import curve, estimate
from selective_backprop_lab.analysis.queries import (
    area_under_curve,
    best_traditional,
    error_as_it_comes,
    final,
    final_difference,
    is_binary,
    macro_recall,
    mean_error,
    passes_to,
    rare_recall,
    reached,
)
from selective_backprop_lab.analysis.summary import comparison_table
from selective_backprop_lab.records.frame import frame_of

ERRORS = st.floats(0.01, 100)


@pytest.mark.parametrize(("count", "last"), [(1, 1), (10, 1), (11, 2), (30, 3)])
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
    plain = frame_of(fixture_seeds("traditional", [10.0, 20.0, 30.0, 99.0]))
    other, apart = fixture_seeds("other", [9.0, 18.0, 29.0]), [fixture_run("other", seed=9)]
    other, apart = frame_of(other), frame_of(apart)
    found = final_difference(other, plain)
    interval = stats.ttest_1samp([-1.0, -2.0, -1.0], 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert final_difference(apart, plain).seeds == 0


@given(st.lists(ERRORS, min_size=1, max_size=12), ERRORS)
def test_a_target_is_reached_at_the_first_evaluation_that_shows_it(errors, target):
    run = fixture_run(errors=errors)
    plainly = [point.seconds for point in run.points if point.test_error <= target]
    assert reached(frame_of([run]), target).item() == min(plainly, default=math.inf)


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
    found = mean_error(frame_of([replace(run, points=points)]), start, end).item()
    if end - start < 1e-6:
        assert math.isnan(found) or min(errors) <= found <= max(errors)
        return
    fine = np.interp(np.linspace(start, end, 20_001), places, errors)
    assert found == pytest.approx(float((fine[1:] + fine[:-1]).mean() / 2), rel=1e-2)


def test_a_span_that_the_run_does_not_cover_has_no_mean_error():
    run = frame_of([fixture_run(errors=[40.0, 20.0], cost=2.0)])
    for start, end in ((0.5, 2.0), (1.0, 2.5), (2.0, 2.0)):
        assert math.isnan(mean_error(run, start, end).item())


def lengths(arm, cost, finals, **changes):
    return fixture_seeds(arm, finals, cost=cost, config={"budget": cost, "epochs": None}, **changes)


def rival(runs):
    found = frame_of(runs)
    return best_traditional(found[found.arm == "traditional"], found[found.arm == "top-k"])


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


@pytest.mark.parametrize("lost", [{"finished": False}, {"finals": [1.0, math.nan, 1.0]}])
def test_runs_that_are_unfinished_or_diverged_do_not_count(lost):
    plain = lengths("traditional", 10.0, [5.0, 5.0, 5.0])
    plain += lengths(**{"arm": "traditional", "cost": 5.0, "finals": [1.0, 1.0, 1.0]} | lost)
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
    found = passes_to(plain_curve(_2=8.0, _4=math.nan, _8=4.0, _32=7.0), error)
    assert found == (None if passes is None else pytest.approx(passes))


SHARES = [0.5, 0.1, 0.2, 0.05, 0.15]
OF_CLASSES = (2.0, 10.0, 4.0, 40.0, 20.0)
MEASURES = (macro_recall, error_as_it_comes, rare_recall)


def skewed_run(errors=OF_CLASSES, skew=1.5):
    run = fixture_run(config={"composition": {"skew": skew}} if skew else None)
    points = [fixture_point(0.5, class_errors=(90.0,) * 5), fixture_point(class_errors=errors)]
    end = {"status": "finished", "meters": {"class_shares": SHARES}}
    return replace(run, points=tuple(points), end=end)


def measured(run):
    return [measure(frame_of([run])).item() for measure in MEASURES]


def table_of(*runs):
    return comparison_table(fixture_comparison(runs)).to_markdown()


def test_the_measures_are_those_of_the_last_evaluation():
    expected = [100 - 76 / 5, 1.0 + 1.0 + 0.8 + 2.0 + 3.0, 100 - (40 + 10 + 20) / 3]
    assert measured(skewed_run()) == pytest.approx(expected)


def test_a_class_without_test_examples_counts_for_nothing():
    recall, as_it_comes, _ = measured(skewed_run((math.nan, 10.0, 4.0, 40.0, 20.0)))
    assert recall == pytest.approx(100 - 74 / 4)
    assert as_it_comes == pytest.approx((1.0 + 0.8 + 2.0 + 3.0) / 0.5)


def test_the_table_shows_them_where_classes_are_skewed_and_nowhere_else():
    text = table_of(skewed_run())
    assert "| as it comes % | macro- recall % | rarest three % |" in text
    assert "| 7.80 | 84.80 | 76.67 |" in text
    assert "macro" not in table_of(skewed_run(skew=0))


def test_the_table_of_two_classes_shows_log_loss_and_the_area_under_the_curve():
    last = fixture_point(test_loss=0.0953, ranking=0.75)
    points = fixture_point(0.5, test_loss=9.0, ranking=0.5), last
    clicks = replace(fixture_run(), points=points)
    assert area_under_curve(frame_of([clicks])).item() == 75.0
    text = table_of(clicks)
    assert "| log-loss × 100 | area under curve % |" in text
    assert "| 9.53 | 75.00 |" in text
    assert not is_binary(frame_of([fixture_run()]))
    assert "log-loss" not in table_of(fixture_run())


@given(st.lists(st.lists(ERRORS, min_size=4, max_size=4), min_size=3, max_size=5))
def test_a_curve_is_the_mean_and_interval_at_each_evaluation(seeds):
    runs = [fixture_run(seed=i, errors=e, cost=10.0 + i) for i, e in enumerate(seeds)]
    found = curve(frame_of(runs), "cost")
    columns = list(zip(*seeds, strict=True))
    assert found.mean == pytest.approx([plain.fmean(column) for column in columns])
    assert found.low == pytest.approx([estimate(column).low for column in columns])
    assert found.high == pytest.approx([estimate(column).high for column in columns])
    mean_cost = 10.0 + (len(seeds) - 1) / 2
    assert found.x == pytest.approx([mean_cost * share for share in (0.25, 0.5, 0.75, 1)])


def test_seeds_evaluated_at_other_moments_meet_at_equal_progress():
    coarse = fixture_run(seed=0, errors=[40.0, 20.0])
    fine = fixture_run(seed=1, errors=[60.0, 50.0, 30.0, 10.0])
    found = curve(frame_of([coarse, fine]), "cost")
    assert found.x == pytest.approx([5.0, 10.0])
    assert found.mean == pytest.approx([45.0, 15.0])


def test_a_seed_without_seconds_is_no_part_of_the_curve_along_them():
    moved = fixture_run(seed=1, end={"machines": ["A", "B"]})
    runs = frame_of([fixture_run(), moved])
    assert curve(runs, "seconds").x == (5.0, 10.0, 15.0, 20.0)
    assert len(curve(runs, "cost").seeds) == 2
