"""Easy-skip leaves out only what the model is confident of, and never all of it."""

import math

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb

ANY = sb.selectors.Context(batch_size=4, window=None)
NOTHING = sb.selectors.History(1)
losses = st.floats(-1, 4, width=32) | st.just(torch.inf)


def skip(selector, scores, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return selector.start(ANY).select(torch.tensor(scores), NOTHING, generator)


@given(
    st.lists(losses, min_size=1, max_size=30),
    st.sampled_from([0.01, 0.25, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 2**32),
)
def test_rows_and_weights_are_the_plain_rules(scores, floor, correction, seed):
    tosses = torch.rand(
        len(scores), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).tolist()
    odds = [reference.skip_odds(loss, floor) for loss in scores]
    rows, weights = skip(sb.selectors.Confident(floor, correction), scores, seed)
    assert rows.tolist() == reference.toss_coins(odds, tosses)
    if not correction:
        assert weights is None
    else:
        assert weights.dtype == torch.float32
        expected = [odds[row] ** -correction for row in rows]
        assert weights.tolist() == pytest.approx(expected, rel=1e-6)


def test_odds_by_hand():
    sure = [0.99, 0.875, 0.75, 0.5, 0.1]
    scores = torch.tensor([-math.log(p) for p in sure]).repeat(4000, 1).flatten()
    rows, weights = skip(sb.selectors.Confident(), scores.tolist())
    kept = (rows % 5).bincount(minlength=5) / 4000
    expected = torch.tensor([0.25, 0.25, 0.5, 1.0, 1.0])
    assert kept.tolist() == pytest.approx(expected.tolist(), abs=0.035)
    assert kept[3:].tolist() == [1.0, 1.0]
    torch.testing.assert_close(weights, expected[rows % 5].rsqrt())


def test_small_losses_keep_their_precision():
    scores = torch.full((1_000_000,), 1e-5)  # 1 - exp(-loss) in float32 would be 1.001e-5
    running = sb.selectors.Confident(1e-9).start(ANY)
    weights = running.select(scores, NOTHING, torch.Generator().manual_seed(0)).weights
    assert len(weights)
    assert weights.tolist() == pytest.approx([2e-5**-0.5] * len(weights), rel=1e-5)


def test_what_was_given_up_is_not_kept_whatever_the_floor():
    assert skip(sb.selectors.Confident(1.0), [-torch.inf, 0.0, -torch.inf]).rows.tolist() == [1]
