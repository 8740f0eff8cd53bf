"""What a comparison is said to show."""

import math
from dataclasses import replace

import pytest
from fixture_runs import fixture_comparison, fixture_run, fixture_seeds

from selective_backprop_lab.analysis.findings import conclusion, gains


def said(*groups):
    return conclusion(fixture_comparison([run for group in groups for run in group]))


def verdicts(*groups):
    found = gains(fixture_comparison([run for group in groups for run in group]))
    return {each.label: each.verdict for each in found}


def of_length(name, finals, cost, **config):
    return fixture_seeds(name, finals, cost=cost, config={"budget": cost, "epochs": None} | config)


TRADITIONAL = fixture_seeds("traditional", [5.0, 5.1, 4.9])


def test_an_arm_whose_interval_is_below_zero_gains():
    found = said(TRADITIONAL, fixture_seeds("other", [4.0, 4.1, 3.8]))
    assert found.pays == "Yes"
    assert found.text == (
        "On fixture-data, plain training ends at 5.00 % error after 10 epochs. other gains: it "
        "ends at 3.97 % error after 10 epochs (−1.03 ± 0.14 points)."
    )


@pytest.mark.parametrize(
    ("finals", "pays", "words"),
    [
        ([6.0, 6.1, 5.8], "No", "other loses: it ends at 5.97 % error after 10 epochs (+0.97 "),
        ([5.0, 5.1, 4.8], "Not shown", "other is level: it ends at 4.97 % error after 10 ep"),
        ([4.0, math.nan, 4.0], "Cannot be said", "diverged"),
        ([], "Cannot be said", "nothing but traditional"),
    ],
)
def test_one_arm_alone_loses_or_is_level_or_gives_no_verdict(finals, pays, words):
    found = said(TRADITIONAL, fixture_seeds("other", finals))
    assert found.pays == pays
    assert words in found.text


@pytest.mark.parametrize(
    ("runs", "words", "todo"),
    [
        ([fixture_run(seed=0), fixture_run("other", seed=1)], "no shared seed", ""),
        (fixture_seeds("other", [5.0] * 3), "no run of plain training", "--strategies traditional"),
    ],
)
def test_without_plain_training_of_the_same_seeds_there_is_no_verdict(runs, words, todo):
    found = said(runs)
    assert found.pays == "Cannot be said"
    assert words in found.text
    assert todo in found.todo


def test_of_several_of_which_none_gains_the_nearest_is_named():
    level, far = fixture_seeds("other", [4.9, 5.1, 4.9]), fixture_seeds("far", [9.0, 9.1, 8.8])
    found = said(TRADITIONAL, level, far)
    assert found.pays == "Not shown"
    assert "No strategy gains; the nearest is other, which ends at 4.97 %" in found.text
    assert said(TRADITIONAL, fixture_seeds("near", [7.0, 7.1, 6.8]), far).text.count("loses") == 1
    assert said(TRADITIONAL, fixture_seeds("near", [7.0, 7.1, 6.8]), far).pays == "No"


def test_verdicts_are_given_together_and_more_seeds_are_asked_for_where_that_leaves_one_open():
    near = fixture_seeds("near", [4.0, 4.6, 4.2])  # p is 0.037
    assert verdicts(TRADITIONAL, near) == {"near": "gains"}
    other = fixture_seeds("other", [5.0, 5.3, 4.8])
    assert verdicts(TRADITIONAL, near, other) == {"near": "level", "other": "level"}
    found = said(TRADITIONAL, near, other)
    assert found.pays == "Not shown"
    assert "--seeds 6" in found.todo
    assert said(TRADITIONAL, other).todo == ""


def test_a_control_is_no_answer_where_something_else_was_run():
    control = fixture_seeds("random-backprop", [4.0, 4.1, 3.8])
    assert said(TRADITIONAL, control).pays == "Yes"
    found = said(TRADITIONAL, control, fixture_seeds("other", [6.0, 6.1, 5.8]))
    assert found.pays == "No"
    assert "random-backprop" not in found.text


def test_what_nobody_would_take_is_judged_and_never_the_answer():
    oracle = fixture_seeds("oracle", [1.0, 1.1, 0.8])
    assert verdicts(TRADITIONAL, oracle) == {"oracle": "gains"}
    found = said(TRADITIONAL, oracle, fixture_seeds("other", [4.9, 5.1, 4.9]))
    assert "oracle" not in found.text
    assert found.pays == "Not shown"


def test_without_traditional_training_of_its_cost_an_arm_has_no_verdict():
    other = of_length("other", [4.0, 4.1, 3.9], 6.0)
    for plain in ([10.0], [4.0], [4.0, 10.0]):
        groups = [of_length("traditional", [5.0, 5.1, 4.9], cost) for cost in plain]
        found = said(*groups, other)
        assert found.pays == "Cannot be said"
        assert "no traditional run cost as much" in found.text
        assert "--budget" in found.todo


def test_with_equal_budgets_a_tenth_more_is_an_equal_cost_and_what_cost_more_is_named():
    plain = of_length("traditional", [5.0, 5.1, 4.9], 4.0)
    near = of_length("near", [4.0, 4.1, 3.8], 4.3, budget=4.0)
    far = of_length("far", [4.0, 4.1, 3.8], 4.6, budget=4.0)
    assert verdicts(plain, near, far) == {"near": "gains", "far": ""}
    assert said(plain, near, far).text.endswith(
        " Left out: far, because no plain training cost as much."
    )


def test_the_same_seconds_are_an_equal_cost_whatever_was_done_in_them():
    length = {"budget": 60, "budget_unit": "seconds"}
    found = said(
        fixture_seeds("traditional", [5.0, 5.1, 4.9], config=length),
        fixture_seeds("other", [4.0, 4.1, 3.9], config=length, cost=4.0),
    )
    assert found.pays == "Yes"
    assert "after 60 seconds" in found.text


@pytest.mark.parametrize(
    ("finals", "pays", "difference"),
    [
        ([2.0, 2.1, 1.9], "Yes", "(−1.10"),
        ([3.0, 3.3, 2.8], "Not shown", "(−0.07"),
        ([4.0, 4.1, 4.2], "No", "(+1.00"),
    ],
)
def test_the_rival_is_a_shorter_training_that_ends_lower(finals, pays, difference):
    plain = (
        of_length("traditional", [6.0, 6.2, 6.1], 32),
        of_length("traditional", [3, 3.1, 3.2], 8),
    )
    found = said(of_length("other", finals, 32), *plain)
    assert found.pays == pays
    assert "plain training does best after 8 passes: 3.10 % error" in found.text
    assert difference in found.text


def test_traditional_training_that_cost_more_is_no_rival_and_tells_the_passes():
    plain = of_length("traditional", [2.0] * 3, 32), of_length("traditional", [5.0] * 3, 8)
    found = said(of_length("other", [3.5, 3.6, 3.4], 8), *plain)
    assert "plain training of up to 8 passes does best after 8 passes: 5.00 %" in found.text
    assert "(−1.50 " in found.text
    assert "needs 2.0 times the passes to end as low." in found.text  # half-way to 32: 16
    found = said(of_length("other", [1.5, 1.6, 1.4], 8), *plain)
    assert "Plain training does not end as low within 32 passes." in found.text
    assert "passes to end" not in said(of_length("other", [5.5, 5.6, 5.4], 8), *plain).text


def test_an_arm_that_does_not_get_worse_with_length_is_told_from_plain_training_that_does():
    plain = (
        of_length("traditional", [6.0, 6.2, 6.1], 32),
        of_length("traditional", [3, 3.1, 3.2], 8),
    )
    short, clause = of_length("other", [2.0, 2.1, 1.9], 8), "does not get worse when trained"
    assert clause in said(*plain, short, of_length("other", [1.8, 1.9, 1.7], 32)).text
    found = said(*plain, short, of_length("other", [4.0, 4.1, 3.9], 32))
    assert clause not in found.text
    assert "after 8 passes (−1.10" in found.text
    assert "; after 32 passes it loses." in found.text
    assert clause not in said(*plain, short).text


def test_where_the_shortest_plain_training_is_the_best_a_shorter_one_is_asked_for():
    other = of_length("other", [4.0, 4.1, 3.9], 8)
    assert "--budget 4:" in said(of_length("traditional", [5.0, 5.1, 4.9], 8), other).todo
    groups = [of_length("traditional", [cost, cost + 0.1, cost - 0.1], cost) for cost in (8, 32)]
    assert "--budget 4:" in said(*groups, other).todo
    assert said(of_length("traditional", [9.0] * 3, 4), groups[0], other).todo == ""


@pytest.mark.parametrize("count", [1, 2])
def test_below_three_seeds_there_is_no_verdict_but_what_it_takes(count):
    one, other = fixture_seeds("traditional", [5.0] * count), fixture_seeds("other", [1.0] * count)
    found = said(one, other)
    assert found.pays == "Cannot be said"
    assert "other ends at 1.00 % error after 10 epochs (−4.00 points)." in found.text
    assert "there is no verdict; a verdict takes 3" in found.text
    assert "--seeds 3" in found.todo
    assert verdicts(one, other) == {"other": ""}


def test_three_equal_differences_are_known_to_one_test_example_and_no_less():
    def verdict_of(examples, gain):
        runs = []
        for name, final in (("traditional", 5.0), ("other", 5.0 - gain)):
            runs += fixture_seeds(name, [final] * 3)
        end = {"status": "finished", "meters": {"test_examples": examples}}
        return verdicts([replace(run, end=end) for run in runs])["other"]

    assert verdict_of(400, 0.25) == "level"
    assert verdict_of(400, 0.5) == "gains"
    assert verdict_of(500, 0.25) == "gains"
