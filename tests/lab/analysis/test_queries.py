"""Questions asked of evaluations."""

import math

import pytest
from fixture_runs import fixture_seeds

from selective_backprop_lab.analysis.queries import gain
from selective_backprop_lab.records.frame import frame_of


def lengths(arm, cost, finals, **changes):
    return fixture_seeds(arm, finals, cost=cost, config={"budget": cost, "epochs": None}, **changes)


def test_the_gain_is_over_the_best_traditional_training_that_cost_no_more():
    # On wrong labels the longest traditional training is not the best.
    found = frame_of(
        lengths("traditional", 10.0, [6.0, 6.2, 6.1])
        + lengths("traditional", 5.0, [5.0, 5.3, 5.1])
        + lengths("traditional", 20.0, [1.0, 1.0, 1.0])
        + lengths("top-k", 10.0, [4.0, 4.2, 4.1])
    )
    paired = gain(found, "top-k", 10.0)
    assert paired.mean == pytest.approx((-1.0 - 1.1 - 1.0) / 3)
    assert paired.seeds == 3
    assert paired.against() == "lower"


def test_costs_that_differ_by_a_last_batch_are_equal():
    own = lengths("top-k", 10.0, [4.0, 4.2, 4.1])
    near, far = (
        frame_of(lengths("traditional", cost, [5.0, 5.3, 5.1]) + own) for cost in (10.2, 10.6)
    )
    assert gain(near, "top-k", 10.0).seeds == 3
    assert gain(far, "top-k", 10.0).seeds == 0
    assert math.isnan(gain(far, "top-k", 10.0).mean)


def test_unfinished_runs_do_not_count():
    found = frame_of(
        lengths("traditional", 10.0, [5.0, 5.0, 5.0])
        + lengths("traditional", 5.0, [1.0, 1.0, 1.0], finished=False)
        + lengths("top-k", 10.0, [4.0, 4.0, 4.0])
    )
    assert gain(found, "top-k", 10.0).mean == pytest.approx(-1.0)
