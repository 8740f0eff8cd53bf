"""Gains, and what is said of them, are those that can be worked out by hand."""

import math
from dataclasses import replace
from itertools import chain

import pytest
from fixture_runs import fixture_run

from reproductions.auto.protocol import STAGES, Tuned, tuned
from reproductions.auto.results import Results, judged
from reproductions.auto.study import by_job
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.records.frame import frame_of

BY_NAME = {each.name: each for stage in STAGES.values() for each in stage.workloads}
PLAIN, WRONG = BY_NAME["mnist"], BY_NAME["mnist-20-wrong"]
NOISE = (-0.1, 0.0, 0.1)  # of the seeds; all strategies share it


def results(workload, curve, **arms):
    """Traditional training with an error at each length, and others at those that they have."""
    ends = {("traditional", length): error for length, error in curve.items()}
    ends |= {(arm, length): error for arm, own in arms.items() for length, error in own.items()}
    runs = [
        fixture_run(arm, seed, (error + noise,), cost=length, config={"budget": length})
        for (arm, length), error in ends.items()
        for seed, noise in enumerate(NOISE)
    ]
    rates = {(arm, Budget("cost", length)): Tuned({0.1: e}) for (arm, length), e in ends.items()}
    return Results(workload, frame_of(runs), frame_of([]), rates, 0)


def verdicts(*found, arm="auto"):
    return [job.verdict for job in judged(found, arm)]


def test_the_rival_is_the_best_traditional_training_up_to_the_same_cost():
    found = results(WRONG, {2: 7, 4: 5, 8: 6, 16: 9, 32: 1}, auto={4: 5.5, 16: 4})
    assert (found.rival(4.0), found.rival(16.0)) == (4.0, 4.0)
    assert found.gain("auto", 4.0).mean == pytest.approx(0.5)
    assert found.gain("auto", 16.0).mean == pytest.approx(-1.0)
    assert verdicts(found) == ["loses", "gains"]
    assert found.change("auto", 16.0).mean == pytest.approx(-20.0)
    table = by_job([found])
    rival = [each.name for each in table.set_columns].index("best traditional (after passes)")
    assert [row[rival] for row in table.rows[1:]] == ["5.00 ± 0.25 (4)"] * 2


def test_the_rival_is_chosen_by_the_tuning_seeds_and_not_by_those_that_are_judged():
    found = results(PLAIN, {4: 5, 16: 6}, auto={16: 5.5})
    lucky = {("traditional", Budget("cost", 4.0)): Tuned({0.1: 9.0})}
    found = replace(found, rates={**found.rates, **lucky})
    assert found.rival(16.0) == 16.0
    assert verdicts(found) == ["gains"]


def noisy(workload, curve, own):
    """As `results`, of `auto` at two lengths with errors of their own for each seed."""
    found = results(workload, curve, auto=dict.fromkeys(own, 0.0))
    for run in found.runs[found.runs.arm == "auto"].itertuples():
        found.runs.loc[run.Index, "error"] = own[run.length][run.seed]
    return found


def test_jobs_of_a_page_are_judged_together():
    # The p-values of the differences are 0.004, and 0.04.
    clear, near = (3.9, 3.9, 3.85), (3.9, 3.9, 3.25)
    alone = noisy(PLAIN, {4: 5, 16: 5}, {16: near})
    assert verdicts(alone) == ["gains"]
    both = noisy(PLAIN, {4: 5, 16: 5}, {4: clear, 16: near})
    assert verdicts(both) == ["gains", "gains"]
    pair = noisy(PLAIN, {4: 5, 16: 5}, {4: near, 16: near})
    assert verdicts(pair) == ["level", "level"]


def tried(arm, budget, rate, errors, **changes):
    config = {"budget": budget, "budget_unit": "cost", "recipe": {"learning_rate": rate}}
    return [
        fixture_run(arm, seed, (50.0, error), config=config, **changes)
        for seed, error in enumerate(errors)
    ]


def test_each_strategy_and_length_has_the_rate_of_its_own_lowest_mean():
    cells = {
        ("traditional", 2.0): {0.2: [4.0, 5.0], 0.1: [3.9, 5.5], 0.05: [6.0, 6.0]},
        ("traditional", 8.0): {0.1: [2.0, 2.0], 0.05: [1.0, 1.0]},
        ("auto", 2.0): {0.05: [9.0, 9.0], 0.1: [4.0, 3.0], 0.2: [8.0, 8.0]},
    }
    runs = [tried(*cell, *each) for cell, own in cells.items() for each in own.items()]
    found = tuned(frame_of(chain.from_iterable(runs)))
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
    unfinished = tried("auto", 2.0, 0.2, [1.0, 1.0], finished=False)
    runs = [*tried("auto", 2.0, 0.1, [4.0, 4.0]), *unfinished]
    ((_, found),) = tuned(frame_of(runs)).items()
    assert (found.errors, found.edge) == ({0.1: 4.0}, 0)
    assert tuned(frame_of(tried("auto", 2.0, 0.1, [math.nan]))) == {}
