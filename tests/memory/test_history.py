"""The last R scores, and the paper's percentile among them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb

# few values, so that most of them are ties
tied = st.integers(-3, 3).map(float)
streams = st.lists(st.lists(tied, min_size=1, max_size=12), min_size=1, max_size=8)
capacities = st.integers(1, 10)


@given(streams, capacities)
def test_the_newest_are_remembered_and_the_oldest_forgotten(stream, capacity):
    history = sb.selectors.History(capacity)
    for batch in stream:
        history.file(torch.tensor(batch))
    everything = [score for batch in stream for score in batch]
    assert sorted(history.recent.tolist()) == sorted(everything[-capacity:])
    assert len(history) == min(capacity, len(everything))


def test_before_the_first_score_nothing_is_left_out():
    history = sb.selectors.History(4)
    history.file(torch.empty(0))
    assert len(history) == 0
    assert history.recent.shape == history.percentiles(torch.empty(0)).shape == (0,)
    assert history.percentiles(torch.tensor([1.0, 2.0])).tolist() == [1.0, 1.0]
    assert int(history.untied()) == len(history)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_scores_of_any_precision_are_ranked(dtype):
    scores = torch.tensor([3.0, 1.0, 2.0, 2.0], dtype=dtype)
    history = sb.selectors.History(8)
    history.file(scores)
    assert history.recent.dtype == dtype
    assert history.percentiles(scores).tolist() == [0.75, 0.0, 0.25, 0.25]


def test_the_mean_is_taken_in_double_precision():
    history = sb.selectors.History(2**12)
    history.file(torch.full((2**12,), 0.1))
    for _ in range(2):
        assert (history.mean().dtype, history.mean().shape) == (torch.float64, ())
        assert history.mean().item() == float(torch.tensor(0.1))


def test_scores_that_carry_gradients_can_be_ranked_and_are_copied():
    scores = torch.tensor([[2.0, 9.0], [1.0, 9.0]], requires_grad=True)[:, 0]
    history = sb.selectors.History(2)
    history.file(scores)
    assert history.percentiles(scores).tolist() == [0.5, 0.0]
    scores.detach().zero_()
    assert history.recent.tolist() == [2.0, 1.0]
    assert not history.recent.requires_grad


@given(st.lists(tied, max_size=20), capacities)
def test_the_share_of_ties_counts_scores_that_have_a_twin(scores, capacity):
    history = sb.selectors.History(capacity)
    history.file(torch.tensor(scores))
    recent = scores[-capacity:]
    twins = sum(recent.count(score) > 1 for score in recent)
    assert int(history.untied()) == len(recent) - twins
