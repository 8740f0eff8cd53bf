"""An interval over seeds is held against a limit, and says yes, no or nothing."""

import math

import pytest

from selective_backprop_lab.analysis.estimates import Estimate
from selective_backprop_lab.analysis.verdict import (
    Finding,
    Verdict,
    in_words,
    is_above,
    is_below,
    opposite,
    tally,
)

HOLDS, FAILS, OPEN = Verdict


@pytest.mark.parametrize(
    ("found", "limit", "above", "below"),
    [
        (Estimate(2.0, 1.0, 3), 0.0, HOLDS, FAILS),
        (Estimate(-2.0, 1.0, 3), 0.0, FAILS, HOLDS),
        (Estimate(0.5, 1.0, 3), 0.0, OPEN, OPEN),
        (Estimate(-1.0, 1.0, 3), 0.0, OPEN, OPEN),
        (Estimate(2.0, math.nan, 3), 0.0, OPEN, OPEN),
        (Estimate(math.nan, math.nan, 3), 0.0, OPEN, OPEN),
        (Estimate(1.5, 0.4, 3), 1.0, HOLDS, FAILS),
        (Estimate(0.5, 0.4, 3), 1.0, FAILS, HOLDS),
        (Estimate(1.2, 0.4, 3), 1.0, OPEN, OPEN),
        # What no seed ever reaches fails, and one seed alone says nothing.
        (Estimate(-math.inf, math.nan, 5), 0.0, FAILS, HOLDS),
        (Estimate(math.inf, math.nan, 5), 0.0, HOLDS, FAILS),
        (Estimate(-math.inf, math.nan, 1), 0.0, OPEN, OPEN),
    ],
)
def test_a_claim_is_judged_by_the_side_of_the_limit_on_which_the_interval_lies(
    found, limit, above, below
):
    assert is_above(found, limit) is above
    assert is_below(found, limit) is below
    assert opposite(above) is below


def test_the_words_hold_number_interval_unit_and_seeds():
    assert in_words(Estimate(2.0, 0.5, 3), "points") == "+2.00 ± 0.50 points (3 seeds)"


def test_a_tally_counts_each_verdict_and_leaves_out_those_that_there_are_none_of():
    found = [Finding("it", verdict, "") for verdict in (OPEN, HOLDS, OPEN)]
    assert tally(found) == "agrees 1, cannot say 2"
    assert tally([]) == ""
