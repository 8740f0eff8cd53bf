"""What is known at an epoch's start: how many scores rank, and which indices are refused."""

import math

import pytest
import torch
from fixture_parts import Stateless

import selective_backprop as sb
from selective_backprop._pipeline.score_memory import EpochScores, ScoreMemory


class Recalling(Stateless, sb.scorers.RunningScorer):
    """Knows what it is told to know."""

    def __init__(self, *known: float) -> None:
        self.known = torch.tensor(known)

    def recall(self, ledger: sb.scorers.Ledger, epoch: int) -> torch.Tensor:
        return self.known

    def score(self, batch: object, indices: torch.Tensor | None) -> torch.Tensor:
        raise NotImplementedError


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("known", "answer"),
    [([NAN, NAN], False), ([NAN, 1.0], None), ([INF, 1.0], True), ([1.0, 2.0], True)],
)
def test_whether_all_scores_are_known_is_known(known, answer):
    memory = ScoreMemory(sb.scorers.Ledger(2), Recalling(*known), sb.scorers.Needs(remembers=True))
    assert memory.knows_all(0) is answer


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
