"""The best learning rate of each strategy and length is found, and how far it was looked for."""

import math

import pytest
from fixture_runs import fixture_run

from reproductions.auto.tuning import tuned
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.records.frame import frame_of


def tried(arm, budget, rate, errors, **changes):
    config = {"budget": budget, "budget_unit": "cost", "recipe": {"learning_rate": rate}}
    return [
        fixture_run(arm, seed, (50.0, error), config=config, **changes)
        for seed, error in enumerate(errors)
    ]


def test_each_strategy_and_length_has_the_rate_of_its_own_lowest_mean():
    runs = [
        *tried("traditional", 2.0, 0.2, [4.0, 5.0]),
        *tried("traditional", 2.0, 0.1, [3.9, 5.5]),
        *tried("traditional", 2.0, 0.05, [6.0, 6.0]),
        *tried("traditional", 8.0, 0.1, [2.0, 2.0]),
        *tried("traditional", 8.0, 0.05, [1.0, 1.0]),
        *tried("auto", 2.0, 0.05, [9.0, 9.0]),
        *tried("auto", 2.0, 0.1, [4.0, 3.0]),
        *tried("auto", 2.0, 0.2, [8.0, 8.0]),
    ]
    found = tuned(frame_of(runs))
    assert {cell: (each.rate, each.error, each.edge) for cell, each in found.items()} == {
        ("traditional", Budget("cost", 2.0)): (0.2, 4.5, 1),
        ("traditional", Budget("cost", 8.0)): (0.05, 1.0, -1),
        ("auto", Budget("cost", 2.0)): (0.1, 3.5, 0),
    }
    first = found["traditional", Budget("cost", 2.0)]
    assert list(first.errors.items()) == [(0.05, 6.0), (0.1, pytest.approx(4.7)), (0.2, 4.5)]


@pytest.mark.parametrize("errors", [[1.0], [1.0, math.nan]])
def test_a_rate_at_which_a_seed_diverged_is_not_taken_and_bounds_the_grid(errors):
    runs = [*tried("auto", 2.0, 0.1, [4.0, 4.0]), *tried("auto", 2.0, 0.05, [5.0, 5.0])]
    ((_, found),) = tuned(frame_of([*runs, *tried("auto", 2.0, 0.2, errors)])).items()
    assert (found.rate, found.edge) == (0.1, 0)
    assert found.errors[0.2] == math.inf


def test_what_did_not_finish_does_not_count_and_one_rate_is_at_no_edge():
    runs = [
        *tried("auto", 2.0, 0.1, [4.0, 4.0]),
        *tried("auto", 2.0, 0.2, [1.0, 1.0], finished=False),
    ]
    ((_, found),) = tuned(frame_of(runs)).items()
    assert (found.errors, found.edge) == ({0.1: 4.0}, 0)
    assert tuned(frame_of(tried("auto", 2.0, 0.1, [math.nan]))) == {}


def test_another_column_may_tell():
    runs = [*tried("auto", 2.0, 0.1, [4.0]), *tried("auto", 2.0, 0.2, [5.0])]
    ((_, found),) = tuned(frame_of(runs), "test_loss").items()
    assert found.errors == {0.1: pytest.approx(0.2), 0.2: pytest.approx(0.2)}
    assert found.rate == 0.1
