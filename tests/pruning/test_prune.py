"""Pruning a data set by its scores: what is kept, what is refused, and what is warned of."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import keep_share
from unhooked import unhooked

import selective_backprop as sb

# Shares so small that a single example is kept, too.
TIED = st.lists(st.integers(0, 4).map(lambda n: n / 4), min_size=1, max_size=40)
SHARES = st.floats(1e-6, 1.0)


def example_scores(scores: torch.Tensor) -> sb.ExampleScores:
    return sb.ExampleScores(scores.double(), "EL2N, 10 models", 103.0)


@given(TIED, SHARES)
def test_a_share_is_kept_and_of_ties_the_first(scores, keep):
    found = sb.prune(torch.tensor(scores), keep)
    assert found.indices.tolist() == keep_share(scores, keep)
    assert found.scores.tolist() == scores
    assert found.examples == len(scores)


def test_the_subset_says_where_it_comes_from_and_what_it_cost():
    scores = torch.tensor([1.0, 3.0, 2.0, 0.0])
    found, bare = sb.prune(example_scores(scores), 0.5), sb.prune(scores, 0.5)
    assert (found.source, found.cost) == ("EL2N, 10 models, kept the highest 50 %", 103.0)
    assert (bare.source, bare.cost) == ("given scores, kept the highest 50 %", 0.0)
    assert torch.equal(found.indices, bare.indices)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0.5, "labels": torch.tensor([0, 1])}, "of 3 .*torch.int64"),
        ({"keep": 0.5, "labels": torch.zeros(3)}, "got torch.float32"),
        ({"keep": 0.5, "labels": ["cat", "dog", "cat"]}, "got list"),
    ],
)
def test_an_option_that_cannot_be_followed_is_refused_and_none_is_ignored(options, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.prune(torch.tensor([1.0, 3.0, 2.0]), **options)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (torch.tensor([1.0, float("nan")]), "1 of 2 scores are not finite"),
        (torch.tensor([1.0, float("inf")]), "1 of 2 scores are not finite"),
        (torch.zeros(2, 2), r"shape \(2, 2\)"),
        (torch.zeros(0), r"shape \(0,\)"),
        ([0.5, 0.25], "got list"),
    ],
)
def test_scores_that_rank_nothing_are_refused(scores, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.prune(scores, 0.5)


@pytest.mark.parametrize("kind", [torch.tensor, np.array, list])
def test_classes_of_which_nothing_is_left_are_named_and_ten_at_most(kind):
    scores = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
    labels = kind([7, 7, 3, 3, 8])
    with pytest.warns(sb.SelectionWarning, match="class 3, 8 "):
        sb.prune(scores, 0.4, labels=labels)
    with pytest.warns(sb.SelectionWarning, match=r"class 1, 2, 3.*, 10 .*5"):
        sb.prune(-torch.arange(16.0), 0.01, labels=torch.arange(16))
    assert len(sb.prune(scores, 0.6, labels=torch.tensor([0, 1, 2, 1, 0]))) == 3  # without one
