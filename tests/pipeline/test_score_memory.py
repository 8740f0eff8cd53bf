"""What is known at an epoch's start, and that it does not change while the epoch runs."""

import math

import pytest
import torch

import selective_backprop as sb
from selective_backprop._pipeline.score_memory import EpochScores, ScoreMemory

NAN, INF = math.nan, math.inf


class Recalling(sb.scorers.RunningScorer):
    """Knows what it is told to know, and counts how often it was asked."""

    def __init__(self, *known: float) -> None:
        self.known = torch.tensor(known) if known else None
        self.asked = 0

    def recall(self, ledger: sb.scorers.Ledger, epoch: int) -> torch.Tensor | None:
        self.asked += 1
        return self.known

    def score(self, batch: object, indices: torch.Tensor | None) -> torch.Tensor:
        raise NotImplementedError

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        pass


def knowledge(*known: float, examples: int = 4, tracks: bool = False) -> EpochScores:
    return EpochScores(torch.tensor(known) if known else None, examples, tracks)


def test_known_scores_are_looked_up_and_unknown_ones_are_nan():
    keys, scores = knowledge(1.0, NAN, 3.0, INF).look_up(torch.tensor([3, 1, 0]))
    assert keys.tolist() == [3, 1, 0]
    assert scores.tolist()[::2] == [INF, 1.0]
    assert math.isnan(scores[1])


@pytest.mark.parametrize("known", [(), (NAN, NAN, 3.0, 4.0)])
def test_where_no_score_is_known_there_are_none(known):
    assert knowledge(*known).look_up(torch.tensor([0, 1]))[1] is None


def test_what_is_ranked_against_is_all_that_is_known_and_finite():
    assert sorted(knowledge(2.0, NAN, INF, 1.0).past.recent.tolist()) == [1.0, 2.0]
    assert not len(knowledge().past)
    assert not len(knowledge(NAN, INF, INF, INF).past)


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
        knowledge(1.0, 2.0, 3.0, 4.0).look_up(keys)


def test_what_came_up_and_was_not_kept_is_left_out():
    known = knowledge(1.0, 2.0, 3.0, 4.0, tracks=True)
    known.look_up(torch.tensor([3, 0, 1]))
    known.keep(torch.tensor([0]))
    known.look_up(torch.tensor([0]))  # a second time
    assert known.left_out().tolist() == [1, 3]
    silent = knowledge(1.0, 2.0, 3.0, 4.0)
    silent.look_up(torch.tensor([1]))
    assert silent.left_out().tolist() == []


@pytest.mark.parametrize(
    ("known", "answer"),
    [((), False), ((NAN, NAN), False), ((NAN, 1.0), None), ((INF, 1.0), True), ((1.0, 2.0), True)],
)
def test_whether_all_scores_are_known_is_known(known, answer):
    memory = ScoreMemory(sb.scorers.Ledger(2), Recalling(*known), sb.scorers.Needs(remembers=True))
    assert memory.knows_all(0) is answer


def test_the_scorer_is_asked_again_only_if_something_has_changed():
    scorer = Recalling(1.0, 2.0)
    memory = ScoreMemory(sb.scorers.Ledger(2), scorer, sb.scorers.Needs(remembers=True))
    for _ in range(3):
        memory.recall(0)
        memory.knows_all(0)
        memory.open(0, handed=9)
        memory.close()
    assert scorer.asked == 1
    memory.recall(1)
    memory.ledger.recorded.file(torch.tensor([0]), torch.tensor([1.0]), 1)
    memory.recall(1)
    assert scorer.asked == 3


def test_what_is_filed_while_an_epoch_runs_counts_from_its_end():
    scorer = Recalling(1.0, 2.0)
    memory = ScoreMemory(sb.scorers.Ledger(2), scorer, sb.scorers.Needs(remembers=True))
    memory.open(3, handed=9)
    scorer.known = torch.tensor([NAN, 2.0])
    memory.ledger.scored.file(torch.tensor([0]), torch.tensor([1.0]), 3)
    assert memory.knows_all(3) is True
    memory.close()
    assert memory.knows_all(4) is None


def test_where_nothing_was_recorded_though_training_began_it_is_said_how():
    memory = ScoreMemory(
        sb.scorers.Ledger(2), Recalling(INF, INF), sb.scorers.Needs(remembers=True, recordings=True)
    )
    memory.open(0, handed=0)
    memory.open(1, handed=1)  # somebody looked at a batch
    with pytest.raises(sb.LossError, match=r"loader\.loss_fn.*loader\.record\(sel"):
        memory.open(1, handed=9)
    memory.ledger.recorded.file(torch.tensor([0]), torch.tensor([1.0]), 0)
    memory.open(1, handed=9)
