"""How an exact number of rows is drawn, each with its own odds."""

import itertools
from fractions import Fraction

import pytest
import reference
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop._sampling.draws import _take_points, tilt_on_device, with_room

seeds = st.integers(0, 2**32)
weights = st.one_of(
    st.sampled_from([0.0, 0.0, 1.0, 1.0, 0.25, 1e-6, 1e6]),
    st.floats(0, 1).map(lambda weight: weight if weight > 1e-200 else 0.0),
    st.floats(1e-200, 1e200),
)
probabilities = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 1 / 3, 1e-9]), st.floats(1e-150, 1))
extreme = st.sampled_from([0.0, 5e-324, 1e-310, 1e-300, 1e-160, 1.0, 1e160, 1e300])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def doubles(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@st.composite
def windows(draw: st.DrawFn, of: st.SearchStrategy[float] = weights) -> tuple[list[float], int]:
    values = draw(st.lists(of, min_size=1, max_size=40))
    return values, draw(st.integers(1, len(values)))


@given(windows())
def test_inclusion_odds_are_the_plain_rules(window):
    values, count = window
    odds = sb.selectors.inclusion_odds(doubles(values), count)
    expected = reference.inclusion_odds([Fraction(value) for value in values], count)
    assert odds.tolist() == pytest.approx([float(value) for value in expected], abs=1e-9)


@given(windows(st.one_of(weights, extreme)), windows(probabilities))
def test_odds_rise_with_the_weight_and_sum_to_the_count(weighted, likely):
    for rule, (values, count) in (
        (sb.selectors.inclusion_odds, weighted),
        (sb.selectors.tilted_odds, likely),
    ):
        odds = rule(doubles(values), count)
        assert odds.dtype == torch.float64
        assert bool(((odds >= 0) & (odds <= 1 + 1e-12)).all())
        assert float(odds.sum()) == pytest.approx(count, abs=1e-9)
        ordered = sorted(zip(values, odds.tolist(), strict=True))
        for (one, lower), (other, higher) in itertools.pairwise(ordered):
            assert lower <= higher + 1e-9
            assert one < other or lower == higher


@given(windows(probabilities))
def test_tilted_odds_are_the_plain_rules(window):
    values, count = window
    exact = [Fraction(value) for value in values]
    room = sum(p * (1 - p) for p in exact)
    # nearer than that, rounding decides whether they are tilted or scaled
    assume(abs(abs(count - sum(exact)) - room) > 1e-9 or room == 0)
    odds = sb.selectors.tilted_odds(doubles(values), count)
    expected = reference.tilted_odds(exact, count)
    assert odds.tolist() == pytest.approx([float(value) for value in expected], abs=1e-7)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
    st.lists(st.sampled_from([0.0, 1e-16, -1e-16, 1e-9, -0.2, 0.2]), min_size=40, max_size=40),
    seeds,
    st.data(),
)
def test_an_exact_draw_takes_the_count_whatever_rounding_did(values, errors, seed, data):
    count = data.draw(st.integers(1, len(values)))
    odds = sb.selectors.inclusion_odds(doubles(values), count) + doubles(errors[: len(values)])
    rows = sb.selectors.draw_exactly(odds.clamp(0, 1), count, generator(seed))
    assert len(set(rows.tolist())) == len(rows) == count


@given(st.lists(st.integers(0, 1024), min_size=2, max_size=40), seeds)
def test_an_exact_draw_is_systematic_sampling_over_a_random_order(parts, seed):
    # multiples of 1/1024 add up without rounding, so both sides see the same sums
    odds = [part / 1024 for part in (*parts, -sum(parts) % 1024)]
    count = round(sum(odds))
    assume(count > 0)
    rows = sb.selectors.draw_exactly(doubles(odds), count, generator(seed))
    source = generator(seed)
    order = torch.randperm(len(odds), generator=source).tolist()
    offset = torch.rand(1, generator=source, dtype=torch.float64).item()
    assert rows.tolist() == reference.sample_systematically(odds, order, offset)


@given(windows(probabilities), seeds)
def test_what_a_device_does_is_what_the_host_does(window, seed):
    values, count = window
    wanted = doubles(values)
    room = (wanted * (1 - wanted)).sum()
    assume(abs(abs(count - wanted.sum()) - room) > 1e-9 or room == 0)
    odds = sb.selectors.tilted_odds(wanted, count)
    tilted = tilt_on_device(with_room(wanted), count)
    torch.testing.assert_close(tilted, odds, rtol=0, atol=1e-7)
    source = generator(seed)
    order = torch.randperm(len(values), generator=source)
    offset = torch.rand(1, generator=source, dtype=torch.float64)
    rows = _take_points(odds, order, offset, count)
    assert rows.tolist() == sb.selectors.draw_exactly(odds, count, generator(seed)).tolist()
