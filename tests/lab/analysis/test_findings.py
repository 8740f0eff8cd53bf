import math
import re
from dataclasses import replace

import pytest
from fixture_runs import fixture_comparison, fixture_run, fixture_seeds

from selective_backprop_lab.analysis.findings import PAYS, findings


def said(*groups):
    runs = [run for group in groups for run in group]
    return findings(fixture_comparison(runs))


def verdict(*groups):
    """The first word of the answer, and the whole of it."""
    (lead, text), *_ = said(*groups).items()
    assert lead == PAYS
    return re.split("[,:. ]", text)[0], text


TRADITIONAL = fixture_seeds("traditional", [5.0, 5.1, 4.9])


def test_an_arm_whose_interval_is_below_zero_pays():
    lead, text = verdict(TRADITIONAL, fixture_seeds("other", [4.0, 4.1, 3.8]))
    assert lead == "Yes"
    assert "in 1 of 1 " in text
    assert "other (−1.03 ± 0.14 points)" in text
    assert "fluke" not in text


@pytest.mark.parametrize(
    ("finals", "lead", "nearest"),
    [
        ([6.0, 6.1, 5.8], "No", "other (+0.97 ± 0.14 points)"),
        ([4.0, 7.0, 4.0], "Not", "other (+0.00"),
        ([5.0, 5.1, 4.8], "Not", "other (−0.03 ± 0.14 points)"),
    ],
)
def test_a_worse_or_an_unresolved_arm_does_not_and_the_nearest_is_named(finals, lead, nearest):
    start, text = verdict(
        TRADITIONAL, fixture_seeds("other", finals), fixture_seeds("far", [9.0] * 3)
    )
    assert start == lead
    assert nearest in text
    assert "far" not in text


def test_each_arm_is_put_where_its_interval_puts_it():
    text = said(
        TRADITIONAL,
        fixture_seeds("good", [4.0, 4.1, 3.9]),
        fixture_seeds("bad", [6.0, 6.1, 5.9]),
        fixture_seeds("open", [4.5, 7.0, 4.5]),
    )["At 10 epochs"]
    better, worse, unresolved = text.split("; ")
    assert better == "ended lower than traditional: good (−1.00 points)"
    assert worse.startswith("ended higher than traditional: bad (+1.00")
    assert unresolved.startswith("no difference resolved, the interval includes zero: open (")


def test_a_control_is_no_answer_where_something_else_was_run():
    control = fixture_seeds("random-backprop", [4.0, 4.1, 3.8])
    assert verdict(TRADITIONAL, control)[0] == "Yes"
    lead, text = verdict(TRADITIONAL, control, fixture_seeds("other", [6.0, 6.1, 5.8]))
    assert lead == "No"
    assert "random-backprop" not in text


def test_another_cost_is_no_equal_cost():
    other = fixture_seeds("other", [4.0, 4.1, 3.9], cost=6.0)
    lead, text = verdict(TRADITIONAL, other)
    assert lead == "Cannot"
    assert "--budget" in text
    assert "at 60% of the cost" in said(TRADITIONAL, other)["At 10 epochs"]


def test_the_same_seconds_are_an_equal_budget_whatever_was_done_in_them():
    length = {"budget": 60, "budget_unit": "seconds"}
    lead, _ = verdict(
        fixture_seeds("traditional", [5.0, 5.1, 4.9], config=length),
        fixture_seeds("other", [4.0, 4.1, 3.9], config=length, cost=4.0),
    )
    assert lead == "Yes"


def test_a_shorter_traditional_training_of_the_same_cost_is_what_counts():
    shorter = fixture_seeds("traditional", [7.0, 7.1, 6.9], cost=6.0, config={"epochs": 6})
    other = fixture_seeds("other", [6.0, 6.1, 5.9], cost=6.0)
    assert verdict(TRADITIONAL, shorter, other)[0] == "Yes"
    assert "against traditional @ 6" in said(TRADITIONAL, shorter, other)["At 10 epochs"]


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
    assert lead == "Yes"
    assert "in 1 of 2 " in text
    assert "other @ 4" in text
    assert "other @ 10" not in text
    assert "fluke" in text


@pytest.mark.parametrize("count", [1, 2])
def test_below_three_seeds_there_is_no_verdict_but_what_it_takes(count):
    one, other = fixture_seeds("traditional", [5.0] * count), fixture_seeds("other", [1.0] * count)
    lead, text = verdict(one, other)
    assert lead == "Cannot"
    assert "--seeds 3" in text
    found = said(one, other)
    assert found["At 10 epochs"].startswith("fewer than 3 ")
    assert found["At 10 epochs"].endswith("so no verdict: other (−4.00 points).")


def test_three_equal_differences_are_known_to_one_test_example_and_no_less():
    def verdict_of(examples, gain):
        runs = []
        for name, final in (("traditional", 5.0), ("other", 5.0 - gain)):
            runs += fixture_seeds(name, [final] * 3)
        end = {"status": "finished", "meters": {"test_examples": examples}}
        return verdict([replace(run, end=end) for run in runs])

    lead, text = verdict_of(400, 0.25)
    assert lead == "Not"
    assert "other (−0.25 ± 0.25 points)" in text
    assert verdict_of(400, 0.5)[0] == "Yes"
    assert verdict_of(500, 0.25)[0] == "Yes"


def test_arms_without_a_shared_seed_give_no_verdict():
    lead, text = verdict([fixture_run(seed=0)], [fixture_run("other", seed=1)])
    assert lead == "Cannot"
    assert "there are 0" in text


def test_a_run_that_diverged_gives_no_verdict():
    lead, text = verdict(TRADITIONAL, fixture_seeds("other", [4.0, math.nan, 4.0]))
    assert lead == "Cannot"
    assert "diverged" in text


def test_of_a_crowd_the_lowest_are_named_and_the_others_counted():
    others = [fixture_seeds(f"arm {i}", [6.0 + i, 6.1 + i, 5.8 + i]) for i in range(9)]
    text = said(TRADITIONAL, *reversed(others))["At 10 epochs"]
    assert re.findall(r"arm \d", text) == [f"arm {i}" for i in range(4)]
    assert "5 more" in text


def test_a_method_is_held_against_choosing_at_random_at_its_cost():
    found = said(
        TRADITIONAL,
        fixture_seeds("random-backprop", [8.0, 8.1, 7.9], cost=3.3),
        fixture_seeds("random-scored", [5.0, 5.1, 4.9], cost=6.0),
        fixture_seeds("other", [5.5, 5.6, 5.4], cost=6.0),
    )
    text = found["Against choosing at random, at equal cost"]
    assert text.startswith("higher than random-scored: other (+0.50")


def test_without_traditional_nothing_is_claimed():
    found = said(fixture_seeds("other", [5.0, 5.0, 5.0]))
    assert list(found) == [PAYS]
    assert found[PAYS].startswith("Cannot be said: no traditional run")


@pytest.mark.parametrize("others", [[], [fixture_run("other", finished=False)]])
def test_traditional_alone_is_said_to_be_alone(others):
    found = said(TRADITIONAL, others)
    assert list(found) == [PAYS]
    assert found[PAYS].startswith("Cannot be said: nothing but traditional")


def of_length(name, finals, cost):
    return fixture_seeds(name, finals, cost=cost, config={"epochs": cost})


@pytest.mark.parametrize(
    ("finals", "answer", "difference"),
    [
        ([2.0, 2.1, 1.9], "Yes", "other @ 32 (−1.10"),
        ([3.0, 3.3, 2.8], "Not", "other @ 32 (−0.07"),
        ([4.0, 4.1, 4.2], "No", "other @ 32 (+1.00"),
    ],
)
def test_a_shorter_training_that_ends_lower_is_what_counts(finals, answer, difference):
    long, short = ([6.0, 6.2, 6.1], 32), ([3.0, 3.1, 3.2], 8)
    plain = [of_length("traditional", *each) for each in (long, short)]
    lead, text = verdict(of_length("other", finals, 32), *plain)
    assert lead == answer
    assert difference in text
    assert "against traditional @ 8)" in text


def test_traditional_training_that_cost_more_does_not_count():
    plain = [of_length("traditional", [end] * 3, cost) for end, cost in ((2.0, 32), (5.0, 8))]
    lead, text = verdict(of_length("other", [4.0, 4.1, 3.9], 8), *plain)
    assert lead == "Yes"
    assert "other @ 8 (−1.00" in text
