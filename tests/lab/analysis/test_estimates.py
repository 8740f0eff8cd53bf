"""What several values say together."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from selective_backprop_lab.analysis.estimates import (
    Estimate,
    Verdict,
    detectable,
    estimate,
    holm,
    is_above,
    opposite,
    seeds_to_find,
    t_quantile,
)

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


@given(st.lists(st.floats(-10, 10), min_size=3, max_size=9))
def test_p_is_that_of_the_t_test_on_one_sample(values):
    found = estimate(values)
    if found.half_width > 1e-6:
        assert found.p == pytest.approx(stats.ttest_1samp(values, 0.0).pvalue, rel=1e-6)
        assert (found.p < 0.05) == (found.against() != "unresolved")


def test_holm_asks_more_the_more_is_judged_together():
    def of(mean):  # ten seeds, of a standard error of 1
        return Estimate(mean, t_quantile(10), 10)

    clear, near = of(-5.0), of(2.5)  # p of 0.0007 and 0.034
    assert holm([near]) == ["higher"]
    assert holm([clear, near]) == ["lower", "higher"]  # 0.0007 < 0.05 / 2, then 0.034 < 0.05
    assert holm([clear, near, of(0.0)]) == ["lower", "unresolved", "unresolved"]  # 0.034 > 0.05 / 2
    assert holm([near, near]) == ["unresolved", "unresolved"]  # neither is below 0.05 / 2


@pytest.mark.parametrize(("seeds", "together"), [(3, 1), (3, 4), (5, 4), (10, 2)])
def test_the_least_difference_that_is_found_four_times_in_five_is_found_so_often(seeds, together):
    found = estimate(np.random.default_rng(0).normal(size=seeds).tolist())
    true, draws = detectable(found, together), np.random.default_rng(1)
    spread = found.half_width / t_quantile(seeds) * math.sqrt(seeds)
    drawn = draws.normal(true, spread, size=(20_000, seeds))
    share = (stats.ttest_1samp(drawn, 0.0, axis=1).pvalue < 0.05 / together).mean()
    assert share == pytest.approx(0.8, abs=0.02)
    assert seeds_to_find(1.01 * true, found, together) == seeds
    assert seeds_to_find(0.0, found, together) is None


def test_holm_leaves_what_has_no_interval_and_counts_it_out():
    unknown, never = estimate([1.0]), estimate([math.inf] * 3)
    alike = estimate([-1.0, -1.0, -1.0])
    assert holm([unknown, alike, never]) == ["unknown", "lower", "higher"]
    assert holm([estimate([0.0, 0.0, 0.0])]) == ["unresolved"]
    assert holm([]) == []


HOLDS, FAILS, OPEN = Verdict


@pytest.mark.parametrize(
    ("found", "limit", "above", "below"),
    [
        (Estimate(2.0, 1.0, 3), 0.0, HOLDS, FAILS),
        (Estimate(-2.0, 1.0, 3), 0.0, FAILS, HOLDS),
        (Estimate(0.5, 1.0, 3), 0.0, OPEN, OPEN),
        (Estimate(1.2, 0.4, 3), 1.0, OPEN, OPEN),
        # What no seed ever reaches fails, and one seed alone says nothing.
        (Estimate(math.inf, math.nan, 5), 0.0, HOLDS, FAILS),
        (Estimate(-math.inf, math.nan, 1), 0.0, OPEN, OPEN),
    ],
)
def test_a_claim_is_judged_by_where_its_interval_lies(found, limit, above, below):
    assert is_above(found, limit) is above
    assert opposite(above) is below
