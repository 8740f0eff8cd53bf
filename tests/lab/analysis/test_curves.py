"""Errors along an axis, over seeds."""

import statistics as plain

import pytest
from fixture_runs import fixture_run
from hypothesis import given
from hypothesis import strategies as st

from selective_backprop_lab.analysis.curves import curve
from selective_backprop_lab.analysis.estimates import estimate
from selective_backprop_lab.records.frame import frame_of

ERRORS = st.floats(0.01, 100)


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


def test_runs_without_evaluations_have_no_curve():
    assert curve(frame_of([fixture_run(upto=0)]), "cost").x == ()
    assert curve(frame_of([]), "cost").x == ()
