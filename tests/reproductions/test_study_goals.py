"""A goal is reached where the whole interval over seeds says so, and missed where it says no."""

import math
from dataclasses import replace

import pytest

from reproductions.auto_study.budget_curves import BudgetCurves
from reproductions.auto_study.goals import goals
from reproductions.auto_study.protocol import STAGES, Benchmark
from reproductions.auto_study.study import Section, overview
from selective_backprop.lab.analysis.verdict import Verdict

CLEAN, _, FLIPPED, _ = STAGES["develop"].benchmarks
BUDGETS = CLEAN.budgets
SEEDS = range(5)


def errors(levels, spread=0.01):
    return {
        budget: {seed: level + spread * (seed - 2) for seed in SEEDS}
        for budget, level in zip(BUDGETS, levels, strict=True)
    }


def curves_with(**arms):
    found = {
        (name.replace("_", "-"), budget): values
        for name, by_budget in arms.items()
        for budget, values in by_budget.items()
    }
    return BudgetCurves(BUDGETS, found)


def judged(benchmark: Benchmark, *, more=None, **arms):
    curves = curves_with(**arms)
    if more is not None:
        longer = {("traditional", benchmark.more): dict.fromkeys(SEEDS, more)}
        curves = replace(curves, errors={**curves.errors, **longer})
    return {goal.claim: goal for goal in goals(benchmark, curves)}


def only(found, words):
    (goal,) = [goal for key, goal in found.items() if words in key]
    return goal


def test_level_is_up_to_a_twentieth_and_three_tenths_of_a_point_above():
    # 5 % of 10 and 0.3: 0.8 points.
    base = errors([10.0] * 3)
    for above, verdict in ((0.79, Verdict.HOLDS), (0.81, Verdict.FAILS)):
        found = judged(CLEAN, traditional=base, auto=errors([10.0 + above] * 3))
        goal = only(found, "at 3 level with the best of the others, traditional")
        assert goal.verdict is verdict
        assert goal.measured == f"+{above:.2f} ± 0.00 points (5 seeds); up to +0.80 is level"


def test_an_interval_that_holds_both_is_unresolved():
    found = judged(CLEAN, traditional=errors([10.0] * 3, 0.0), auto=errors([10.7] * 3, 0.2))
    assert only(found, "at 9 level").verdict is Verdict.OPEN


def test_it_is_held_against_the_best_of_each_budget():
    found = judged(
        CLEAN,
        traditional=errors([10.0, 8.0, 6.0]),
        easy_skip=errors([11.0, 7.0, 6.5]),
        auto=errors([10.0, 7.0, 6.0]),
    )
    words = [key for key in found if "level" in key]
    assert [key.rpartition(" ")[2] for key in words] == ["traditional", "easy-skip", "traditional"]


def test_areas_must_lie_below_both_controls():
    found = judged(
        CLEAN,
        traditional=errors([10.0] * 3),
        random_backprop=errors([9.0] * 3),
        auto=errors([9.5] * 3),
    )
    assert only(found, "mean error over the logarithm of cost below traditional's").verdict == (
        Verdict.HOLDS
    )
    assert only(found, "below random-backprop's").verdict is Verdict.FAILS


def test_the_lowest_budget_is_held_against_a_quarter_more_traditional_training():
    base, ours = errors([10.0] * 3), errors([9.5] * 3)
    goal = only(judged(CLEAN, traditional=base, auto=ours, more=9.8), "at 3 as low as")
    assert goal.claim.endswith("traditional at 3.75")
    assert goal.verdict is Verdict.HOLDS
    goal = only(judged(CLEAN, traditional=base, auto=ours, more=9.0), "at 3 as low as")
    assert goal.verdict is Verdict.FAILS
    assert not [key for key in judged(CLEAN, traditional=base, auto=ours) if "as low as" in key]


def test_times_are_those_of_the_full_length_with_shortened_training_beside():
    # Traditional is at 2.2 only when nearly as long; ours ends there at 9 already.
    found = judged(CLEAN, traditional=errors([6.0, 4.0, 2.0], 0), auto=errors([4.0, 2.1, 2.0], 0))
    goal = only(found, "1.1 times")
    assert goal.claim == "1.1 times traditional's error at 27 (2.20 %) 1.5 × sooner"
    assert goal.verdict is Verdict.HOLDS
    theirs = 9 * 3 ** (math.log(4 / 2.2) / math.log(4 / 2))
    mine = 3 * 3 ** (math.log(4 / 2.2) / math.log(4 / 2.1))
    assert goal.measured.startswith(f"at 1/{27 / mine:.2f} (")
    assert f" of that cost; traditional itself at 1/{27 / theirs:.2f} (" in goal.measured
    assert f", of which that is 1/{theirs / mine:.2f} (" in goal.measured


def test_what_never_gets_there_misses():
    found = judged(CLEAN, traditional=errors([6.0, 4.0, 2.0]), auto=errors([6.0, 5.0, 4.0]))
    goal = only(found, "1.4 times")
    assert goal.verdict is Verdict.FAILS
    assert goal.measured.startswith("never; traditional itself at 1/")


def test_flipped_labels_ask_for_the_end_and_for_no_times():
    found = judged(
        FLIPPED,
        traditional=errors([20.0, 12.0, 10.0]),
        selective_backprop=errors([20.0, 14.0, 13.0]),
        auto=errors([20.0, 12.0, 10.0]),
    )
    assert only(found, "with flipped labels no higher than traditional at 27").verdict == (
        Verdict.HOLDS
    )
    assert only(found, "where selective-backprop ends higher").verdict is Verdict.HOLDS
    assert not [key for key in found if "sooner" in key]


def test_a_single_seed_resolves_nothing():
    single = {b: {0: 10.0} for b in BUDGETS}
    for error in (9.0, 20.0):
        found = judged(CLEAN, traditional=single, auto={b: {0: error} for b in BUDGETS})
        assert {goal.verdict for goal in found.values()} == {Verdict.OPEN}


@pytest.mark.parametrize("stage", STAGES)
def test_every_benchmark_has_its_own_title_and_rising_budgets(stage):
    benchmarks = STAGES[stage].benchmarks
    assert len({benchmark.title for benchmark in benchmarks}) == len(benchmarks)
    assert all(list(each.budgets) == sorted(set(each.budgets)) for each in benchmarks)
    assert all(replace(benchmark, noise=0.2).more == 3.75 for benchmark in benchmarks)


def test_the_stages_share_no_data_and_no_seed():
    develop, confirm = (STAGES[stage] for stage in ("develop", "confirm"))
    data = [{each.recipe.data for each in stage.benchmarks} for stage in (develop, confirm)]
    assert not data[0] & data[1]
    assert not {*develop.seeds(50)} & {*confirm.seeds(50)}


def test_at_a_glance_all_are_held_against_traditional_of_the_same_cost():
    section = Section(CLEAN, (), 0)
    vars(section)["curves"] = curves_with(
        traditional=errors([10.0, 8.0, 6.0], 0.0),
        stale_sb=errors([1.0, 1.0, 1.0]),
        auto=errors([9.5, 8.0, 6.25], 0.0),
    )
    table = overview([section])
    assert table.columns == ("", "traditional", "auto")
    assert table.rows == (
        ("Digits at 3", "10.00 ± 0.00", "−0.50 ± 0.00"),
        ("Digits at 9", "8.00 ± 0.00", "+0.00 ± 0.00"),
        ("Digits at 27", "6.00 ± 0.00", "+0.25 ± 0.00"),
    )
