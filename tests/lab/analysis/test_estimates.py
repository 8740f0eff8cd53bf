"""What several values say together."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from selective_backprop_lab.analysis.estimates import estimate

ERRORS = st.floats(0.01, 100)


@given(st.lists(ERRORS, min_size=3, max_size=9))
def test_an_interval_is_students_over_seeds(values):
    found = estimate(values)
    assert found.mean == pytest.approx(sum(values) / len(values))
    assert found.seeds == len(values)
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    assert found.half_width == pytest.approx(
        stats.t.ppf(0.975, len(values) - 1) * spread, rel=1e-6, abs=1e-9
    )


def test_below_three_seeds_there_is_no_spread_and_of_none_no_mean():
    for values in ([3.0], [3.0, 3.0]):
        few = estimate(values)
        assert (few.mean, few.seeds) == (3.0, len(values))
        assert math.isnan(few.half_width)
        assert few.against(2.0) == "unknown"
    none = estimate([])
    assert math.isnan(none.mean)
    assert none.seeds == 0


def test_no_interval_is_narrower_than_what_can_be_seen():
    assert estimate([3.0, 3.0, 3.0], 0.28).half_width == 0.28
    assert estimate([3.0, 4.0, 5.0], 0.28) == estimate([3.0, 4.0, 5.0])


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_a_run_that_diverged_leaves_no_interval(lost):
    assert math.isnan(estimate([1.0, 2.0, lost]).half_width)
