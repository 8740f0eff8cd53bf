"""Scores that are predicted from earlier ones, once for each epoch."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from fixture_memory import Loop, begin, strategy
from unhooked import unhooked

import selective_backprop as sb


@dataclass(frozen=True)
class Asked(sb.scorers.AbstractPredictor):
    """Predicts each example's number, and notes what it was asked."""

    depth: int = 2
    questions: list[tuple[sb.scorers.Observations, int]] = field(default_factory=list, repr=False)

    def predict(self, observed: sb.scorers.Observations, epoch: int) -> np.ndarray:
        self.questions.append((observed, epoch))
        return np.arange(observed.scores.shape[1], dtype=np.float32)


def test_predictions_stand_where_scores_are_good_and_nothing_elsewhere():
    ledger = sb.scorers.Ledger(4, depth=2)
    running = begin(sb.scorers.Predicted(sb.scorers.Forward(), Asked(), epochs=3), 4)
    assert running.recall(ledger, 0) is None
    ledger.scored.file(torch.tensor([0, 1]), torch.tensor([5.0, 5.0]), 0)
    ledger.scored.file(torch.tensor([1, 2]), torch.tensor([5.0, 5.0]), 2)
    ledger.recorded.file(torch.tensor([3]), torch.tensor([5.0]), 2)  # of another source
    expected = {2: [0.0, 1.0, 2.0, None], 3: [None, 1.0, 2.0, None]}
    for epoch, predictions in expected.items():
        found = running.recall(ledger, epoch).tolist()
        assert [None if math.isnan(score) else score for score in found] == predictions
    assert running.recall(ledger, 5) is None


def test_the_predictor_is_asked_once_for_an_epoch_and_gets_the_scores_it_looks_at():
    predictor = Asked(depth=2)
    loop = Loop(
        strategy(sb.scorers.Predicted(sb.scorers.Forward(), predictor, 3)), 24, records=False
    )
    for _ in range(6):
        lengths = {len(loop.loader) for _ in range(3)}
        assert lengths == {loop.epoch().batches[-1]}
    assert [epoch for _, epoch in predictor.questions] == [1, 2, 4, 5]
    last = predictor.questions[-1][0]
    assert last.epochs.tolist() == [[3] * 24, [0] * 24]
    assert not np.isnan(last.scores).any()


def test_what_predicts_nothing_is_refused():
    with pytest.raises(sb.ConfigurationError, match=r"epochs=1: .* at least 2.* predicted"):
        sb.scorers.Predicted(sb.scorers.Forward(), epochs=1)
    for predictor in (None, sb.scorers.Average, sb.scorers.Forward()):
        with unhooked(), pytest.raises(sb.ConfigurationError, match="no predictor"):
            sb.scorers.Predicted(sb.scorers.Forward(), predictor)
