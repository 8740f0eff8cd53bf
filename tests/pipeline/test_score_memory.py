"""Scores known at the start of an epoch: what is ranked against, and which index is refused."""

import pytest
import torch

import selective_backprop as sb
from selective_backprop._pipeline.score_memory import EpochScores


def test_of_very_many_known_scores_as_many_are_ranked_against_as_ranks_need():
    scores = torch.rand(3_000_000, generator=torch.Generator().manual_seed(0))
    past = EpochScores(scores, len(scores), tracks=False).past
    assert len(past) == 2**20
    some = scores[:1_000]
    exact = torch.searchsorted(scores.sort().values, some) / len(scores)
    assert (past.percentiles(some) - exact).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a", "b"], "no whole numbers"),
        (torch.tensor([0.5]), "no whole numbers"),
        (torch.tensor([0, 4]), "0 to 4.* 4"),
        (torch.tensor([-1, 2]), "-1 to 2"),
    ],
)
def test_what_is_no_index_of_the_data_set_is_refused(keys, message):
    with pytest.raises(sb.LoaderError, match=message):
        EpochScores(torch.arange(4.0), 4, tracks=False).look_up(keys)
