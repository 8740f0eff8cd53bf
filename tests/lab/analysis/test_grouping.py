import pytest
from fixture_runs import fixture_run

import selective_backprop as sb
from selective_backprop_lab.analysis.grouping import differences, gather


def test_traditional_comes_first_then_the_controls_then_methods_by_name():
    names = ["stale-sb", "random-scored", "auto", "traditional", "random-backprop"]
    comparison = gather([fixture_run(name) for name in names])
    assert [arm.label for arm in comparison.groups] == [
        "traditional",
        "random-backprop",
        "random-scored",
        "auto",
        "stale-sb",
    ]


def test_lengths_are_arms_of_their_own_the_longest_first():
    runs = [
        fixture_run(name, config={"budget": budget, "budget_unit": "cost"}, cost=budget)
        for budget in (3.0, 10.0)
        for name in ("random-backprop", "traditional")
    ]
    comparison = gather(runs)
    assert [arm.label for arm in comparison.groups] == [
        "traditional @ 10",
        "random-backprop @ 10",
        "traditional @ 3",
        "random-backprop @ 3",
    ]
    assert comparison.baseline == comparison.groups[0]
    assert comparison.same_length(comparison.groups[3]) == comparison.groups[2]


@pytest.mark.parametrize(
    ("config", "label", "words"),
    [
        ({"epochs": 3}, "traditional @ 3", "3 epochs"),
        ({"budget": 2.5}, "traditional @ 2.5", "a budget of 2.5 traditional epochs"),
        (
            {"budget": 60, "budget_unit": "seconds"},
            "traditional @ 60 s",
            "a budget of 60 seconds",
        ),
    ],
)
def test_a_length_reads_as_it_was_set(config, label, words):
    comparison = gather([fixture_run(config=config), fixture_run(config={"epochs": 99})])
    (arm,) = [arm for arm in comparison.groups if arm.length == words]
    assert arm.label == label


@pytest.mark.parametrize("config", [{"epochs": "ten"}, {"budget": 1, "budget_unit": "parsecs"}])
def test_a_length_that_means_nothing_is_refused(config):
    with pytest.raises(sb.RecordError, match="expected a number of epochs"):
        gather([fixture_run(config=config)])


def test_seeds_are_in_order_and_unfinished_runs_stand_apart():
    runs = [
        fixture_run(seed=2),
        fixture_run(seed=0),
        fixture_run(seed=1, upto=2, finished=False),
        fixture_run(seed=3, upto=0),
    ]
    comparison = gather(runs)
    (arm,) = comparison.groups
    assert arm.seeds == (0, 2)
    assert [run.header.seed for run in arm.unfinished] == [1, 3]


@pytest.mark.parametrize("key", ["data", "limit", "noise", "pretrained", "model"])
def test_different_data_or_models_are_never_compared(key):
    runs = [fixture_run(), fixture_run("other", config={key: {"name": "else"}})]
    with pytest.raises(sb.RecordError, match=rf"{key} .*: \w+, seed 0\."):
        gather(runs)


def test_two_configurations_under_one_name_are_refused():
    runs = [fixture_run(seed=0), fixture_run(seed=1, config={"strategy": "another"})]
    with pytest.raises(sb.RecordError, match="strategy another: traditional, seed 0"):
        gather(runs)


def test_the_same_seed_twice_is_refused():
    with pytest.raises(sb.RecordError, match="both traditional, seed 0"):
        gather([fixture_run(), fixture_run()])


def test_no_runs_are_refused():
    with pytest.raises(sb.RecordError, match="no records"):
        gather([])


def test_a_missing_baseline_is_none():
    for runs in ([fixture_run("other")], [fixture_run("other"), fixture_run(finished=False)]):
        assert gather(runs).baseline is None


def test_nested_configurations_are_compared_entry_by_entry():
    runs = [
        fixture_run(config={"recipe": {"lr": 0.1, "rates": {"warm": rates}}}) for rates in (1, 2)
    ]
    assert differences(runs, ignore=()) == {"recipe.rates.warm"}
    assert differences(runs, ignore={"recipe"}) == set()
