"""InfoBatch prunes below the mean, and makes up for it by weights."""

import pytest
import reference
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import selective_backprop as sb

ANY = sb.selectors.Context(batch_size=4, window=None)

# halves, so that their sums are exact and it is certain what is below the mean
halves = st.integers(-6, 12).map(lambda number: number / 2)
losses = st.lists(halves | st.just(torch.inf), min_size=1, max_size=30)


def prune(selector, scores, remembered, seed=0):
    history = sb.selectors.History(64)
    history.file(torch.tensor(remembered))
    generator = torch.Generator().manual_seed(seed)
    return selector.start(ANY).select(torch.tensor(scores), history, generator)


@given(losses, losses | st.just([]), st.sampled_from([0.0, 0.3, 0.5, 0.9]), st.integers(0, 2**32))
def test_rows_and_weights_are_the_papers(scores, remembered, probability, seed):
    mean = reference.mean_of_known(remembered)
    assume(mean is None or (mean * 2).is_integer() or abs(mean * 2 - round(mean * 2)) > 1e-3)
    tosses = torch.rand(
        len(scores), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).tolist()
    expected, weights = reference.prune_below_mean(scores, remembered, probability, tosses)
    published = prune(
        sb.selectors.BelowMean(probability, longer_steps=True), scores, remembered, seed
    )
    assert published.rows.tolist() == expected
    assert published.weights.tolist() == pytest.approx(weights)

    below = 0 if mean is None else sum(score < mean for score in remembered)
    kept_share = 1 - probability * below / max(1, len(remembered))
    scaled = prune(sb.selectors.BelowMean(probability), scores, remembered, seed)
    assert scaled.rows.tolist() == expected
    assert scaled.weights.tolist() == pytest.approx([weight * kept_share for weight in weights])


@pytest.mark.parametrize("remembered", [[], [torch.inf, torch.inf]])
def test_where_nothing_is_known_everything_is_kept_and_weighs_1(remembered):
    rows, weights = prune(sb.selectors.BelowMean(0.9), [1.0, 2.0, torch.inf], remembered)
    assert rows.tolist() == [0, 1, 2]
    assert weights.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_where_all_losses_are_equal_none_is_below_the_mean(dtype):
    scores = torch.full((1000,), 0.1, dtype=dtype)
    history = sb.selectors.History(1000)
    history.file(scores)
    choice = sb.selectors.BelowMean(0.9).start(ANY).select(scores, history, torch.Generator())
    if dtype is not torch.float64:  # whose mean is as exact as its scores, and no more
        assert len(choice.rows) == 1000
    assert float(choice.weights.sum()) == pytest.approx(len(choice.rows), rel=0.05)


def test_what_equals_the_mean_in_its_own_precision_is_not_below_it():
    scores = torch.ones(1000)
    scores[0] += 2**-23
    history = sb.selectors.History(1000)
    history.file(scores)
    assert history.mean() > 1
    choice = sb.selectors.BelowMean(0.9).start(ANY).select(scores, history, torch.Generator())
    assert choice.weights.tolist() == [1.0] * 1000
