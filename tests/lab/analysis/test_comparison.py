"""Which runs are compared, in which order, and which never are."""

import pytest
from fixture_runs import fixture_comparison, fixture_run

import selective_backprop as sb
from selective_backprop_lab.analysis.comparison import arms, leaders, ranking
from selective_backprop_lab.analysis.queries import counted


def labels(runs):
    return [*arms(fixture_comparison(runs))]


def test_traditional_comes_first_then_the_controls_then_methods_by_name():
    names = ["stale-sb", "random-scored", "auto", "traditional", "random-backprop"]
    ordered = ["traditional", "random-backprop", "random-scored", "auto", "stale-sb"]
    assert labels([fixture_run(name) for name in names]) == ordered


def test_each_length_is_a_row_of_its_own_the_longest_first():
    runs = [
        fixture_run(name, config={"budget": budget, "budget_unit": "cost"}, cost=budget)
        for budget in (3.0, 10.0)
        for name in ("random-backprop", "traditional")
    ]
    expected = ["traditional @ 10", "random-backprop @ 10", "traditional @ 3"]
    assert labels(runs) == [*expected, "random-backprop @ 3"]


@pytest.mark.parametrize("config", [{"epochs": "ten"}, {"budget": 1, "budget_unit": "parsecs"}])
def test_a_length_that_means_nothing_is_refused(config):
    with pytest.raises(sb.RecordError, match="expected a number of epochs"):
        fixture_comparison([fixture_run(config=config)])


def test_seeds_are_in_order_and_unfinished_runs_do_not_count():
    runs = [
        fixture_run(seed=2),
        fixture_run(seed=0),
        fixture_run(seed=1, upto=2, finished=False),
        fixture_run(seed=3, upto=0),
    ]
    comparison = fixture_comparison(runs)
    assert [*comparison.seed.unique()] == [0, 1, 2, 3]
    assert [*counted(comparison).seed.unique()] == [0, 2]


@pytest.mark.parametrize(
    "key", ["data", "limit", "noise", "anew", "held_out", "pretrained", "model"]
)
def test_different_data_or_models_are_never_compared(key):
    runs = [fixture_run(), fixture_run("other", config={key: "else"})]
    with pytest.raises(sb.RecordError, match=rf"{key} .*: \w+, seed 0\."):
        fixture_comparison(runs)


def test_the_same_seed_twice_and_no_runs_are_refused():
    with pytest.raises(sb.RecordError, match="both traditional, seed 0"):
        fixture_comparison([fixture_run(), fixture_run()])
    with pytest.raises(sb.RecordError, match="no records"):
        fixture_comparison([])


SHORT = {"cost": 5.0, "config": {"epochs": 5}}


def crowd():
    """Four arms of two lengths, one of them unfinished, and one of the short length alone."""
    finals = {"traditional": 5.0, "good": 3.0, "bad": 9.0, "best": 2.0}
    runs = [fixture_run(arm, errors=[50.0, error]) for arm, error in finals.items()]
    runs += [fixture_run(arm, errors=[50.0, 1.0], **SHORT) for arm in ("good", "brief")]
    return fixture_comparison([*runs, fixture_run("late", upto=1, finished=False)])


def test_arms_are_ranked_by_the_final_error_of_their_longest_runs_and_unfinished_ones_last():
    *finished, last = ranking(crowd())
    assert finished == ["brief @ 5", "best @ 10", "good @ 10", "traditional @ 10", "bad @ 10"]
    assert last == "late @ 10"
    runs = [fixture_run(finished=False, upto=1), fixture_run(errors=[4.0], **SHORT)]
    assert ranking(fixture_comparison(runs)) == ["traditional @ 5"]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, ["traditional @ 10"]),
        (2, ["traditional @ 10", "best @ 10", "brief @ 5"]),
        (9, ["traditional @ 10", "bad @ 10", "best @ 10", "good @ 10", "late @ 10", "brief @ 5"]),
    ],
)
def test_leaders_are_traditional_and_those_that_end_lowest(count, expected):
    assert leaders(crowd(), count) == expected
