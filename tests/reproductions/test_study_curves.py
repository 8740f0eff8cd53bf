"""Errors over cost: what is read off the curvess is what can be worked out by hand."""

import math

import numpy as np
import pytest
from fixture_runs import fixture_run

from reproductions.auto_study.budget_curves import BudgetCurves, budget_curves
from selective_backprop.lab.analysis.statistics import estimate

BUDGETS = (2.0, 4.0, 16.0)
SEEDS = range(100, 104)


def power(scale, exponent=0.5, *, jitter=0.0):
    """Errors of `scale / cost ** exponent`, each seed's a little off."""
    return {
        budget: {seed: scale / budget**exponent * (1 + jitter * (seed - 101.5)) for seed in SEEDS}
        for budget in BUDGETS
    }


def fixture_curves(**arms):
    errors = {
        (name.replace("_", "-"), budget): values
        for name, by_budget in arms.items()
        for budget, values in by_budget.items()
    }
    return BudgetCurves(BUDGETS, errors)


def test_runs_are_sorted_by_strategy_and_budget_and_unfinished_ones_left_out():
    def config(budget):
        return {"data": "d", "model": "m", "budget": budget, "budget_unit": "cost"}

    runs = [
        fixture_run("auto", 100, errors=[9.0, 7.0], config=config(2.0)),
        fixture_run("auto", 101, errors=[9.0, 6.0], config=config(2.0)),
        fixture_run("auto", 100, errors=[9.0, 5.0], config=config(4.0)),
        fixture_run("auto", 102, errors=[9.0, 1.0], config=config(2.0), finished=False),
    ]
    curves = budget_curves(runs, [4.0, 2.0])
    assert curves.budgets == (2.0, 4.0)
    assert curves.errors == {("auto", 2.0): {100: 7.0, 101: 6.0}, ("auto", 4.0): {100: 5.0}}
    assert curves.arms == ["auto"]


def test_a_strategy_that_lacks_a_budget_is_left_out():
    curves = fixture_curves(traditional=power(10.0), auto=power(9.0))
    assert curves.arms == ["traditional", "auto"]
    more = dict(curves.errors) | {("kath18", 2.0): {100: 1.0}}
    assert BudgetCurves(BUDGETS, more).arms == ["traditional", "auto"]


def test_the_best_of_the_others_is_not_auto():
    curves = fixture_curves(traditional=power(10.0), easy_skip=power(9.0), auto=power(5.0))
    assert curves.best_rival(4.0) == "easy-skip"


def test_differences_pair_seeds_that_both_have():
    errors = {
        ("auto", 2.0): {100: 5.0, 101: 6.0, 102: 50.0},
        ("traditional", 2.0): {100: 6.0, 101: 8.0, 103: 0.0},
        ("traditional", 4.0): {100: 5.5, 102: 50.0},
    }
    curves = BudgetCurves((2.0,), errors)
    assert curves.difference("auto", 2.0, "traditional") == estimate([-1.0, -2.0])
    assert curves.difference("auto", 2.0, "traditional", 4.0) == estimate([-0.5, 0.0])


def test_the_area_is_the_mean_error_over_the_logarithm_of_cost():
    # Straight over the logarithm: 10 at 2, 8 at 4, 4 at 16; its mean is that of the ends.
    straight = {budget: dict.fromkeys(SEEDS, 10 - 2 * math.log2(budget / 2)) for budget in BUDGETS}
    level = {budget: dict.fromkeys(SEEDS, 6.5) for budget in BUDGETS}
    curves = fixture_curves(traditional=level, auto=straight)
    found = curves.area_difference("auto", "traditional")
    assert found.mean == pytest.approx(0.5)
    assert found.half_width == pytest.approx(0.0, abs=1e-12)
    assert found.seeds == 4


def test_half_the_error_at_each_cost_is_reached_four_times_sooner():
    # By scale / sqrt(cost): the same error at a quarter of the cost.
    curves = fixture_curves(traditional=power(10.0, jitter=0.01), auto=power(5.0, jitter=0.01))
    found = curves.sooner("auto", 3.0)
    assert found.mean == pytest.approx(math.log(4.0))
    assert found.half_width == pytest.approx(0.0, abs=1e-9)
    assert curves.full_over("auto", 3.0).mean == pytest.approx(math.log(16 / (5 / 3) ** 2))
    assert curves.full_over("traditional", 3.0).mean == pytest.approx(math.log(16 / (10 / 3) ** 2))


def test_an_error_that_the_lowest_budget_has_is_there_at_no_lower_cost():
    curves = fixture_curves(traditional=power(10.0), auto=power(5.0))
    assert curves.full_over("auto", 9.0).mean == pytest.approx(math.log(16 / 2))


def test_an_error_that_is_never_reached_is_infinitely_late():
    curves = fixture_curves(traditional=power(10.0), auto=power(20.0))
    assert curves.full_over("auto", 2.5).mean == -math.inf
    assert curves.sooner("auto", 2.5).mean == -math.inf
    assert math.isnan(curves.sooner("traditional", 2.5, by="auto").mean)


def test_the_interval_grows_with_the_spread_over_seeds_and_holds_what_seeds_say_alone():
    rng = np.random.default_rng(0)
    theirs, mine = power(10.0), power(5.0)
    for budget in BUDGETS:
        for seed in SEEDS:
            mine[budget][seed] *= math.exp(0.05 * rng.standard_normal())
    found = fixture_curves(traditional=theirs, auto=mine).sooner("auto", 2.5)
    assert 0.02 < found.half_width < 1.0
    assert found.low < math.log(4.0) < found.high


def test_one_seed_says_nothing_of_the_spread():
    alone = BudgetCurves((2.0, 4.0), {("auto", 2.0): {1: 4.0}, ("auto", 4.0): {1: 2.0}})
    found = alone.full_over("auto", 2.0)
    assert found.mean == pytest.approx(0.0)
    assert math.isnan(found.half_width)
