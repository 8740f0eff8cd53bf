"""Agreement of two scorings: of their order, and of the highest."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.scorers._agreement import overlap, rank_correlation

ties = st.integers(0, 4).map(float)
values = st.one_of(ties, st.floats(-1e6, 1e6, width=32))
pairs = st.lists(st.tuples(values, values), min_size=1, max_size=30)


def average_ranks(values: Sequence[float]) -> list[float]:
    """Each value's place among all of them, from 0; equal ones share the mean of their places."""
    return [
        sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values
    ]


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Pearson's correlation of the ranks; without spread 1 where neither has any, else 0."""
    first, second = average_ranks(list(one)), average_ranks(list(other))
    middle = (len(first) - 1) / 2
    covariance = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    spreads = [sum((rank - middle) ** 2 for rank in ranks) for ranks in (first, second)]
    if 0 in spreads:
        return float(spreads[0] == spreads[1])
    return covariance / math.sqrt(spreads[0] * spreads[1])


def shared_highest(one: Sequence[float], other: Sequence[float], count: int) -> float:
    """Which share of the `count` highest two scorings have in common, ties being shared out."""

    def places(values: Sequence[float]) -> list[float]:
        odds = []
        for value in values:
            above = sum(other > value for other in values)
            odds.append(min(1.0, max(0.0, (count - above) / values.count(value))))
        return odds

    return sum(map(min, places(list(one)), places(list(other)))) / count


@given(pairs=pairs)
def test_the_correlation_is_that_of_the_ranks_with_ties_averaged(pairs):
    one, other = zip(*pairs, strict=True)
    found = rank_correlation(torch.tensor(one), torch.tensor(other))
    assert float(found) == pytest.approx(spearman(one, other), abs=1e-9)


@given(pairs=pairs, share=st.floats(0.01, 1))
def test_the_overlap_is_the_share_of_the_highest_that_both_have(pairs, share):
    one, other = zip(*pairs, strict=True)
    count = max(1, round(share * len(one)))
    found = overlap(torch.tensor(one), torch.tensor(other), count)
    assert float(found) == pytest.approx(shared_highest(one, other, count), abs=1e-9)


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_what_is_not_finite_ranks_highest_and_spoils_nothing(odd):
    exact = torch.tensor([1.0, 2.0, 3.0, odd])
    found = sb.scorers.Agreement.between(torch.tensor([1.0, 2.0, 3.0, 4.0]), exact, rate=0.5)
    assert (found.correlation, found.overlap) == (1, 1)


@pytest.mark.parametrize(
    ("sizes", "rate", "said"),
    [
        ((2, 2), 0.0, r"rate=.* in \(0, 1\]"),
        ((2, 3), 0.5, "compared with"),
        ((0, 0), 0.5, "compared with"),
    ],
)
def test_a_share_of_nothing_and_scores_of_other_candidates_are_refused(sizes, rate, said):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=said):
        sb.scorers.Agreement.between(*map(torch.ones, sizes), rate=rate)
