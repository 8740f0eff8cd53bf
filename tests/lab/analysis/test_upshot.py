import pytest
from fixture_runs import fixture_run, fixture_seeds

from selective_backprop.lab.analysis.grouping import gather
from selective_backprop.lab.analysis.upshot import upshot

LONG, SHORT = {"epochs": 32}, {"epochs": 8}


def said(*groups):
    return upshot(gather([run for group in groups for run in group]))


def traditional(finals, cost):
    return fixture_seeds("traditional", finals, cost=cost, config={"epochs": cost})


@pytest.mark.parametrize(
    ("finals", "words"),
    [
        ([2.0, 2.1, 1.9], "Selection paid: other @ 32 ended at 2.00 ± 0.25 % error"),
        ([3.0, 3.3, 2.8], "Selection gained nothing"),
        ([4.0, 4.1, 4.2], "Selection lost"),
    ],
)
def test_the_best_shortened_training_is_what_counts(finals, words):
    other = fixture_seeds("other", finals, cost=32, config={"epochs": 32})
    text = said(other, traditional([6.0, 6.2, 6.1], 32), traditional([3.0, 3.1, 3.2], 8))
    assert text.startswith(words)
    assert "at 3.10 ± 0.25 % at its best (traditional @ 8)" in text


def test_traditional_training_that_cost_more_does_not_count():
    other = fixture_seeds("other", [4.0, 4.1, 3.9], cost=8.2, config={"epochs": 8})
    text = said(other, traditional([2.0, 2.1, 1.9], 32), traditional([5.0, 5.1, 5.2], 8))
    assert text.startswith("Selection paid")
    assert "(traditional @ 8)" in text


def test_the_lowest_of_several_strategies_is_named():
    others = [
        fixture_seeds(name, [end, end + 0.1, end - 0.1]) for name, end in (("a", 4), ("b", 3))
    ]
    assert "b ended at 3.00" in said(fixture_seeds("traditional", [5.0, 5.1, 4.9]), *others)


def test_one_seed_gives_no_verdict_and_one_strategy_no_sentence():
    one = fixture_run("traditional"), fixture_run("other", errors=(50.0, 1.0))
    assert said(one).startswith("Too few seeds")
    assert said([one[0]]) == ""
    assert said([one[1]]) == ""
