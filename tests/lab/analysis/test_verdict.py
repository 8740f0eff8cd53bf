"""An interval over seeds is held against a limit, and says yes, no or nothing."""

import math

import pytest

from selective_backprop.lab.analysis.statistics import Estimate
from selective_backprop.lab.analysis.verdict import (
    GOALS,
    Finding,
    Verdict,
    above_zero,
    below_zero,
    is_above,
    is_below,
    opposite,
    tally,
)

HOLDS, FAILS, OPEN = Verdict


@pytest.mark.parametrize(
    ("mean", "half", "above", "below"),
    [
        (2.0, 1.0, HOLDS, FAILS),
        (-2.0, 1.0, FAILS, HOLDS),
        (0.5, 1.0, OPEN, OPEN),
        (-1.0, 1.0, OPEN, OPEN),
        (2.0, math.nan, OPEN, OPEN),
        (math.nan, math.nan, OPEN, OPEN),
    ],
)
def test_a_claim_is_judged_by_the_side_on_which_the_interval_lies(mean, half, above, below):
    found = Estimate(mean, half, 3)
    assert above_zero("it", found, "points").verdict is above
    assert below_zero("it", found, "points").verdict is below


def test_the_words_hold_number_interval_unit_and_seeds():
    found = above_zero("it", Estimate(2.0, 0.5, 3), "points of error")
    assert found.measured == "+2.00 ± 0.50 points of error (3 seeds)"


@pytest.mark.parametrize(
    ("mean", "half", "above", "below"),
    [(1.5, 0.4, HOLDS, FAILS), (0.5, 0.4, FAILS, HOLDS), (1.2, 0.4, OPEN, OPEN)],
)
def test_a_limit_moves_the_sides(mean, half, above, below):
    found = Estimate(mean, half, 3)
    assert is_above(found, 1.0) is above
    assert is_below(found, 1.0) is below


def test_what_no_seed_ever_reaches_fails_and_one_seed_alone_says_nothing():
    assert is_above(Estimate(-math.inf, math.nan, 5)) is FAILS
    assert is_above(Estimate(math.inf, math.nan, 5)) is HOLDS
    assert is_above(Estimate(-math.inf, math.nan, 1)) is OPEN


def test_the_contrary_claim_holds_where_a_claim_fails():
    assert [opposite(each) for each in (HOLDS, FAILS, OPEN)] == [FAILS, HOLDS, OPEN]


def test_a_tally_counts_each_verdict_and_leaves_out_those_that_there_are_none_of():
    found = [Finding("it", verdict, "") for verdict in (OPEN, HOLDS, OPEN)]
    assert tally(found) == "agrees 1, cannot say 2"
    assert tally(found, GOALS) == "reached 1, unresolved 2"
    assert tally([]) == ""
