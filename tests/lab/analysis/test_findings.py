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
SHORTER = of_length("traditional", [6.0, 6.2, 6.1], 32), of_length("traditional", [3, 3.1, 3.2], 8)


def test_an_arm_whose_interval_is_below_zero_gains():
    found = said(TRADITIONAL, fixture_seeds("other", [4.0, 4.1, 3.8]))
    assert found.pays == "Yes"
    assert found.text == (
        "On fixture-data, plain training ends at 5.00 % error after 10 epochs. other gains: it "
        "ends at 3.97 % error after 10 epochs (−1.03 ± 0.14 points), in 1.00 times the CPU time."
    )


@pytest.mark.parametrize(
    ("finals", "pays", "words"),
    [
        ([6.0, 6.1, 5.8], "No", "other loses: it ends at 5.97 % error after 10 epochs (+0.97 "),
        ([5.0, 5.1, 4.8], "Not shown", "other is level: it ends at 4.97 % error after 10 ep"),
        ([5.0, 5.8, 4.5], "Not shown", "other is not shown to gain or to lose: it ends at 5.10"),
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
    assert "no strategy gains; the nearest is other, which ends at 4.97 %" in found.text
    lost = said(TRADITIONAL, fixture_seeds("near", [7.0, 7.1, 6.8]), far)
    assert (lost.text.count("loses"), lost.pays) == (1, "No")


def test_strategies_that_lose_are_named_and_a_control_that_is_nearer_is_set_apart():
    level, far = fixture_seeds("other", [4.9, 5.1, 4.9]), fixture_seeds("far", [9.0, 9.1, 8.8])
    control = fixture_seeds("random-backprop", [4.8, 5.1, 4.9])
    found = said(TRADITIONAL, control, level, far)
    assert "; apart from random choice (random-backprop), the nearest is other" in found.text
    assert found.text.endswith(" far loses.")
    farther = fixture_seeds("random-backprop", [5.5, 5.6, 5.4])
    assert "random-backprop" not in said(TRADITIONAL, farther, level, far).text
    wins, worse = fixture_seeds("other", [4.0, 4.1, 3.8]), fixture_seeds("worse", [9.0, 9.1, 8.8])
    assert said(TRADITIONAL, wins, worse, far).text.endswith(" far and worse lose.")


def test_verdicts_are_given_together_and_more_seeds_are_asked_for_where_that_leaves_one_open():
    near = fixture_seeds("near", [4.0, 4.6, 4.2])  # p is 0.037
    assert verdicts(TRADITIONAL, near) == {"near": "gains"}
    other = fixture_seeds("other", [5.0, 5.3, 4.8])
    assert verdicts(TRADITIONAL, near, other) == {"near": "open", "other": "level"}
    found = said(TRADITIONAL, near, other)
    assert found.pays == "Not shown"
    assert "--seeds 4 would probably" in found.todo
    assert said(TRADITIONAL, other).todo == ""


def test_a_difference_is_level_only_within_half_a_point_and_a_tenth_of_the_error():
    def verdict(error, *differences):
        plain = fixture_seeds("traditional", [error] * 3)
        other = fixture_seeds("other", [error + each for each in differences])
        return verdicts(plain, other)["other"]

    assert verdict(20.0, -0.1, 0.0, 0.1) == "level"
    assert verdict(20.0, -0.2, 0.0, 0.2) == "level"  # the interval reaches 0.497
    assert verdict(20.0, -0.21, 0.0, 0.21) == "open"
    assert verdict(2.0, -0.08, 0.0, 0.08) == "level"  # 0.199
    assert verdict(2.0, -0.1, 0.0, 0.1) == "open"


def curves(arm, length, *errors, unit="cost"):
    """Three runs of a length, whose curves are 0.1 points apart."""
    lasting = {"budget": length, "epochs": None} if unit == "cost" else {"epochs": length}
    return [
        fixture_run(arm, seed, [error + seed / 10 for error in errors], cost=length, config=lasting)
        for seed in range(3)
    ]


# As on a table of one's own with 15 % of the labels wrong: plain training learns these later.
FORGETTING = 6.0, 2.0, 2.6, 3.2, 3.8, 4.2, 4.5, 4.7, 4.8, 4.8
SAME = [9.0] * 9
ADVISED = "open: try traditional at --budget 4"


@pytest.mark.parametrize("unit", ["cost", "epochs"])
def test_nothing_gains_while_plain_training_was_lower_on_its_way(unit):
    plain = curves("traditional", 20, *FORGETTING, unit=unit)
    later = curves("auto", 20, *SAME, 2.3, unit=unit)
    found = said(plain, later)
    assert verdicts(plain, later) == {"auto": ADVISED}
    assert found.pays == "Not shown"
    assert "traditional was at 2.10 % after 4 passes, below the end of auto." in found.text
    assert "the same with --strategies traditional --budget 4, then report: plain" in found.todo
    assert verdicts(plain, curves("auto", 20, *SAME, 1.9, unit=unit)) == {"auto": "gains"}
    assert verdicts(plain, curves("auto", 20, *SAME, 5.9, unit=unit)) == {"auto": "loses"}


def test_nobody_is_advised_to_train_for_less_than_two_passes():
    plain, later = curves("traditional", 9, *FORGETTING), curves("auto", 9, *SAME, 2.3)
    assert verdicts(plain, later) == {"auto": "open"}
    found = said(plain, later)
    assert "traditional was at 2.10 % after 1.8 passes" in found.text
    assert found.todo == ""
    shortest = of_length("traditional", [5.0, 5.1, 4.9], 3.9)
    assert said(shortest, of_length("other", [4.0, 4.1, 3.9], 3.9)).todo == ""


def test_the_end_of_plain_training_of_that_length_counts_instead_of_the_curve():
    plain, auto = curves("traditional", 20, *FORGETTING), curves("auto", 20, *SAME, 2.3)
    for end, verdict in ((2.7, "gains"), (1.8, "loses")):
        short = curves("traditional", 4, *SAME, end)
        assert verdicts(plain, short, auto)["auto @ 20"] == verdict


def test_chance_on_the_way_leaves_a_level_arm_level():
    plain = curves("traditional", 20, 9.0, 4.7, *[4.8] * 8)
    assert verdicts(plain, curves("auto", 20, *SAME, 4.8)) == {"auto": "level"}
    assert verdicts(plain, curves("auto", 20, *SAME, 4.79)) == {"auto": ADVISED}


def test_what_a_treatment_does_is_told_from_what_selection_adds():
    alone = fixture_seeds("traditional+smoothing-0.3", [4.0, 4.1, 3.8])
    for finals, pays, adds in (
        ([3.0, 3.1, 2.7], "Yes", "−1.03 ± 0.14 (gains)"),
        ([3.95, 4.2, 3.7], "Not shown", "−0.02 ± 0.26 (level)"),
    ):
        both = fixture_seeds("auto+smoothing-0.3", finals)
        found = said(TRADITIONAL, alone, both)
        assert found.text.startswith(
            "On fixture-data, smoothing-0.3 alone changes the error by −1.03 ± 0.14 points, and "
            f"auto adds {adds}; plain training ends at 5.00 % error"
        )
        assert found.pays == pays
        assert verdicts(TRADITIONAL, alone, both)["auto+smoothing-0.3"] == "gains"
    found = said(TRADITIONAL, both)
    assert found.pays == "Not shown"
    assert "add traditional+smoothing-0.3 to --strategies" in found.todo
    assert said(TRADITIONAL, alone).pays == "Not shown"  # nothing was selected


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
    found = said(of_length("other", finals, 32), *SHORTER)
    assert found.pays == pays
    assert (
        "plain training ends lowest after 8 passes, at 3.10 % error, the number to beat"
        in found.text
    )
    assert difference in found.text


def test_where_the_shortest_plain_training_is_the_best_a_shorter_one_is_asked_for():
    other = of_length("other", [4.0, 4.1, 3.9], 8)
    assert "--budget 4," in said(of_length("traditional", [5.0, 5.1, 4.9], 8), other).todo
    groups = [of_length("traditional", [cost, cost + 0.1, cost - 0.1], cost) for cost in (8, 32)]
    assert "--budget 4," in said(*groups, other).todo
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
