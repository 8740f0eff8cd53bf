import math

import pytest
from fixture_runs import fixture_run, fixture_seeds

from selective_backprop.lab.analysis.findings import findings
from selective_backprop.lab.analysis.grouping import gather


def said(*groups):
    runs = [run for group in groups for run in group]
    return findings(gather(runs))


def verdict(*groups):
    """What stands below the worth."""
    return list(said(*groups).items())[1]


TRADITIONAL = fixture_seeds("traditional", [5.0, 5.1, 4.9])


def test_an_arm_whose_interval_is_below_zero_is_better():
    lead, text = verdict(TRADITIONAL, fixture_seeds("other", [4.0, 4.1, 3.9]))
    assert lead == "Better than traditional training at equal cost"
    assert text.startswith("other. ")
    assert "Fewer" not in text


@pytest.mark.parametrize("finals", [[6.0, 6.1, 5.9], [4.0, 7.0, 4.0], [5.0, 5.1, 4.8]])
def test_a_worse_or_an_unresolved_arm_is_not_better(finals):
    lead, _ = verdict(TRADITIONAL, fixture_seeds("other", finals))
    assert lead == "Nothing beat traditional training"


def test_each_arm_is_put_where_its_interval_puts_it():
    text = said(
        TRADITIONAL,
        fixture_seeds("good", [4.0, 4.1, 3.9]),
        fixture_seeds("bad", [6.0, 6.1, 5.9]),
        fixture_seeds("open", [4.5, 7.0, 4.5]),
    )["At 10 epochs"]
    better, worse, unresolved = text.split("; ")
    assert better == "a lower final error than traditional: good (−1.00 ± 0.00 points)"
    assert worse.startswith("a higher final error than traditional: bad (+1.00")
    assert unresolved.startswith("no difference resolved, the interval includes zero: open (")


def test_another_cost_is_no_equal_cost():
    other = fixture_seeds("other", [4.0, 4.1, 3.9], cost=6.0)
    lead, text = verdict(TRADITIONAL, other)
    assert lead == "No comparison at equal cost"
    assert "left open" in text
    assert "at 60% of the cost" in said(TRADITIONAL, other)["At 10 epochs"]


def test_the_same_seconds_are_an_equal_budget_whatever_was_done_in_them():
    length = {"budget": 60, "budget_unit": "seconds"}
    lead, _ = verdict(
        fixture_seeds("traditional", [5.0, 5.1, 4.9], config=length),
        fixture_seeds("other", [4.0, 4.1, 3.9], config=length, cost=4.0),
    )
    assert lead == "Better than traditional training at equal cost"


def test_a_shorter_traditional_training_of_the_same_cost_is_what_counts():
    shorter = fixture_seeds("traditional", [7.0, 7.1, 6.9], cost=6.0, config={"epochs": 6})
    other = fixture_seeds("other", [6.0, 6.1, 5.9], cost=6.0)
    found = said(TRADITIONAL, shorter, other)
    assert found["Better than traditional training at equal cost"].startswith("other. ")
    assert "against traditional @ 6" in found["At 10 epochs"]


def test_how_often_an_arm_was_better_is_counted():
    groups = [
        fixture_seeds(name, finals, cost=cost, config={"budget": cost})
        for cost in (4.0, 10.0)
        for name, finals in (
            ("traditional", [5.0, 5.1, 4.9]),
            ("other", [cost, cost + 0.1, cost - 0.1]),
        )
    ]
    lead, text = verdict(*groups)
    assert lead.startswith("Better")
    assert text.startswith("other (at 1 of 2 costs). ")


def test_one_seed_gives_no_verdict():
    found = said([fixture_run()], [fixture_run("other", errors=[50.0, 1.0])])
    assert "spread is unknown" in found["No verdict"]
    assert found["At 10 epochs"].startswith("too few shared seeds to tell: other (")


def test_arms_without_a_shared_seed_give_no_verdict():
    found = said([fixture_run(seed=0)], [fixture_run("other", seed=1)])
    assert found["At 10 epochs"] == "too few shared seeds to tell: other (no shared seed)."


def test_a_run_that_diverged_gives_no_verdict():
    lead, _ = verdict(TRADITIONAL, fixture_seeds("other", [4.0, math.nan, 4.0]))
    assert lead == "No verdict"


def test_two_seeds_are_called_too_few():
    _, text = verdict(
        fixture_seeds("traditional", [5.0, 5.0]), fixture_seeds("other", [4.0, 4.0001])
    )
    assert "too few for a claim" in text


def test_a_method_is_held_against_choosing_at_random_at_its_cost():
    found = said(
        TRADITIONAL,
        fixture_seeds("random-backprop", [8.0, 8.1, 7.9], cost=3.3),
        fixture_seeds("random-scored", [5.0, 5.1, 4.9], cost=6.0),
        fixture_seeds("other", [5.5, 5.6, 5.4], cost=6.0),
    )
    text = found["Against choosing at random, at equal cost"]
    assert text.startswith("higher error than random-scored: other (+0.50")


def test_without_traditional_nothing_is_claimed():
    found = said(fixture_seeds("other", [5.0, 5.0, 5.0]))
    assert list(found) == ["Nothing to compare with"]


@pytest.mark.parametrize("others", [[], [fixture_run("other", finished=False)]])
def test_traditional_alone_is_said_to_be_alone(others):
    assert list(said(TRADITIONAL, others)) == ["Traditional training alone"]
