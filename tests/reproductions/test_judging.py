import math

import pytest
from fixture_runs import fixture_run, fixture_seeds

from reproductions.jiang2019.judging import (
    Finding,
    Verdict,
    above_zero,
    below_zero,
    ends_comparably,
    ends_higher,
    learns_sooner,
    reaches_sooner,
    tally,
)
from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.analysis.statistics import Estimate
from selective_backprop.lab.budget import Length

AGREES, DISAGREES, UNCLEAR = Verdict


def arm(runs):
    return Arm(name="any", label="any", length=Length("epochs", 10.0), runs=tuple(runs))


@pytest.mark.parametrize(
    ("mean", "half", "above", "below"),
    [
        (2.0, 1.0, AGREES, DISAGREES),
        (-2.0, 1.0, DISAGREES, AGREES),
        (0.5, 1.0, UNCLEAR, UNCLEAR),
        (-1.0, 1.0, UNCLEAR, UNCLEAR),
        (2.0, math.nan, UNCLEAR, UNCLEAR),
        (math.nan, math.nan, UNCLEAR, UNCLEAR),
    ],
)
def test_a_claim_is_judged_by_the_side_on_which_the_interval_lies(mean, half, above, below):
    found = Estimate(mean, half, 3)
    assert above_zero("it", found, "points").verdict is above
    assert below_zero("it", found, "points").verdict is below


def test_the_words_hold_number_interval_unit_and_seeds():
    found = above_zero("it", Estimate(2.0, 0.5, 3), "points of error")
    assert found.words == "+2.00 ± 0.50 points of error (3 seeds)"


def test_who_has_less_area_under_the_curve_learns_sooner():
    quick = arm(fixture_run("a", seed, (40.0 + seed, 10.0, 5.0)) for seed in range(3))
    slow = arm(fixture_run("b", seed, (50.0 + seed, 30.0, 5.0)) for seed in range(3))
    found = learns_sooner("it", quick, slow, "cost")
    assert found.verdict is AGREES
    assert found.words.startswith("−12.50 ± 0.00 points of mean error over the same cost")
    assert learns_sooner("it", slow, quick, "cost").verdict is DISAGREES


def test_what_ends_a_little_higher_is_comparable_and_what_ends_much_higher_is_not():
    base = arm(fixture_seeds("b", (10.0, 10.1, 9.9)))
    near = arm(fixture_seeds("a", (10.4, 10.5, 10.3)))
    far = arm(fixture_seeds("a", (12.0, 12.1, 12.0)))
    apart = arm(fixture_seeds("a", (9.0, 13.0, 10.0)))
    judged = [ends_comparably("it", each, base).verdict for each in (near, far, apart)]
    assert judged == [AGREES, DISAGREES, UNCLEAR]
    assert ends_higher("it", far, base).verdict is AGREES


def at_half(seeds, seconds):
    return arm(
        fixture_run("a", seed, (20.0, 5.0), seconds=s)
        for seed, s in zip(seeds, seconds, strict=True)
    )


def test_a_speed_up_is_a_ratio_seed_by_seed():
    fast, slow = at_half(range(3), (10.0, 11.0, 10.0)), at_half(range(3), (20.0, 22.0, 21.0))
    found = reaches_sooner("it", fast, slow, 20.0, "seconds")
    assert found.verdict is AGREES
    assert found.words.startswith("2.03× as fast in wall seconds to 20.00 % (1.")
    assert reaches_sooner("it", slow, fast, 20.0, "seconds").verdict is DISAGREES


def test_what_never_arrives_is_not_faster_and_what_seldom_does_is_not_judged():
    base = at_half(range(3), (20.0, 22.0, 21.0))
    never = arm(fixture_run("a", seed, (40.0, 30.0)) for seed in range(3))
    found = reaches_sooner("it", never, base, 20.0, "seconds")
    assert (found.verdict, found.words) == (DISAGREES, "never reached 20.00 % with 3 of 3 seeds")
    once = arm([*never.runs[:2], fixture_run("a", 2, (10.0, 5.0))])
    assert reaches_sooner("it", once, base, 20.0, "seconds").verdict is UNCLEAR
    single = arm(never.runs[:1])
    assert reaches_sooner("it", single, base, 20.0, "seconds").verdict is UNCLEAR


def test_a_tally_counts_each_verdict_and_leaves_out_those_that_there_are_none_of():
    found = tuple(Finding("it", verdict, "") for verdict in (UNCLEAR, AGREES, UNCLEAR))
    assert tally(found) == "agrees 1, cannot say 2"
    assert tally(()) == "no claim"
