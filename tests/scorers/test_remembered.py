"""Scorers that answer from memory: stale scores, predicted ones, and losses of training."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from fixture_loaders import Numbered, losses_by_number, select
from fixture_memory import PREDICTED, RECORDED, STALE, Loop, begin, strategy
from hypothesis import given
from hypothesis import strategies as st
from reference import PlainLedger, remembered
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop._core.types import NO_TARGET

EXAMPLES = 7


FILINGS = st.lists(
    st.tuples(st.integers(0, 9), st.sets(st.integers(0, EXAMPLES - 1)), st.booleans()), max_size=8
)


@given(FILINGS, st.integers(2, 5), st.booleans(), st.integers(0, 4))
def test_a_score_is_used_again_for_as_long_as_it_is_good(filings, epochs, spread, later):
    filings = sorted(filings, key=lambda filing: filing[0])
    ledger = sb.scorers.Ledger(EXAMPLES)
    scored = PlainLedger(EXAMPLES, 1)
    for number, (epoch, indices, takes) in enumerate(filings):
        keys, scores = sorted(indices), [float(number)] * len(indices)
        if takes:
            scored.file(keys, scores, epoch)
        column = ledger.scored if takes else ledger.recorded  # which is not read
        column.file(torch.tensor(keys, dtype=torch.int64), torch.tensor(scores), epoch)
    now = max((epoch for epoch, *_ in filings), default=0) + later
    stale = sb.scorers.Stale(sb.scorers.Forward(), epochs, spread)
    found = begin(stale, EXAMPLES).recall(ledger, now)
    expected = [
        remembered(scored.newest(index), index, now, epochs, spread=spread)
        for index in range(EXAMPLES)
    ]
    if found is None:
        assert expected == [None] * EXAMPLES
    else:
        assert [None if math.isnan(score) else score for score in found.tolist()] == expected


@pytest.mark.parametrize(
    "kind",
    [sb.scorers.Stale, sb.scorers.Predicted, lambda inner: sb.scorers.Recorded(rescore=inner)],
)
@pytest.mark.parametrize(
    "inner", ["forward", sb.selectors.Top(0.5), sb.scorers.Forward, STALE, PREDICTED, RECORDED]
)
def test_what_cannot_be_wrapped_is_refused(kind, inner):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=r"is no scorer|remembers scores"):
        kind(inner)


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


HARDEST = sb.selectors.Top(1 / 2)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, EXAMPLES - 1))), max_size=6),
    st.none() | st.integers(1, 4),
)
def test_an_example_is_judged_by_its_last_loss_and_infinitely_hard_without_one(filings, max_age):
    ledger, twin = sb.scorers.Ledger(EXAMPLES), PlainLedger(EXAMPLES, 1)
    for number, (epoch, indices) in enumerate(sorted(filings, key=lambda filing: filing[0])):
        keys, losses = sorted(indices), [float(number)] * len(indices)
        ledger.recorded.file(torch.tensor(keys, dtype=torch.int64), torch.tensor(losses), epoch)
        twin.file(keys, losses, epoch)
    found = begin(sb.scorers.Recorded(max_age), EXAMPLES).recall(ledger, 10).tolist()
    for index, loss in enumerate(found):
        newest = twin.newest(index)
        known = newest is not None and (max_age is None or 10 - newest[1] <= max_age)
        assert loss == (newest[0] if known else math.inf)


def test_of_losses_alone_one_that_is_not_a_number_counts_as_that_of_a_row_without_a_target():
    ledger = sb.scorers.Ledger(EXAMPLES)
    ledger.recorded.file(torch.tensor([2]), torch.tensor([math.nan]), 0)
    for epoch in (1, 9):
        known = begin(sb.scorers.Recorded(max_age=4), EXAMPLES).recall(ledger, epoch).tolist()
        assert known.pop(2) == NO_TARGET
        assert known == [math.inf] * (EXAMPLES - 1)


def test_without_a_scorer_for_what_was_left_out_it_takes_no_scores():
    with pytest.raises(sb.ConfigurationError, match="takes no scores"):
        begin(sb.scorers.Recorded(), EXAMPLES).score(torch.ones(2), None)
    assert begin(sb.scorers.Recorded(rescore=sb.scorers.Forward()), EXAMPLES).score(
        torch.ones(2), None
    ).tolist() == [1, 1]


def test_the_hardest_by_the_recorded_losses_are_selected_before_they_are_loaded():
    loop = Loop(strategy(sb.scorers.Recorded(), HARDEST), 24, loads=12).epochs(3)
    assert sorted(loop.trained[0]) != sorted(loop.trained[1])
    known = losses_by_number(None, (None, torch.arange(24)))
    # what was left out at first is of unknown loss, and is trained on next
    assert {*loop.trained[0]} | {*loop.trained[1]} == {*range(24)}
    assert len(loop.trained[0]) == len(loop.trained[2]) == 12
    dealt = loop.sampler.passes[2]
    hardest = sorted(sorted(dealt, key=lambda index: -known[index])[:12])
    assert sorted(loop.trained[2]) == hardest
    assert loop.data.reads.sum() == loop.loader.stats.loaded == 36
    assert loop.loader.stats.scored == loop.calls == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("held", [1, 3])
def test_losses_are_recorded_in_any_order_by_a_consumer_that_holds_batches(held, workers):
    def chosen(held: int, workers: int) -> list[list[int]]:
        loop = Loop(strategy(sb.scorers.Recorded(), HARDEST), 24, workers=workers, records=False)
        found = []
        for _ in range(4):
            waiting, trained = [], []
            for (_, targets), selection in loop.loader:
                trained += targets.tolist()
                waiting.append((selection, losses_by_number(None, (None, targets))))
                if len(waiting) == held:
                    for late in reversed(waiting):
                        loop.loader.record(*late)
                    waiting.clear()
            for late in waiting:
                loop.loader.record(*late)
            found.append(trained)
        return found

    assert chosen(held, workers) == chosen(1, 0)


@pytest.mark.parametrize(("policy", "refused"), [("raise", True), ("skip", False)])
def test_a_recorded_loss_that_is_not_finite_is_refused_or_unknown_by_policy(policy, refused):
    loop = Loop(strategy(sb.scorers.Recorded()), 24, options={"nonfinite": policy}, records=False)
    _, selection = next(iter(loop.loader))
    losses = torch.tensor([1.0, math.nan, math.inf, 2.0])
    if refused:
        named = selection.indices[1:3].tolist()
        with pytest.raises(sb.LossError, match="2 of 4") as caught:
            loop.loader.record(selection, losses)
        assert str(named) in str(caught.value)
        assert loop.loader.ledger.recorded.empty
    else:
        loop.loader.record(selection, losses)
        found = loop.loader.ledger.recorded.observe().scores[0, selection.indices]
        assert [None if math.isnan(loss) else loss for loss in found] == [1.0, None, None, 2.0]


def test_a_strategy_that_remembers_nothing_lets_recorded_losses_pass():
    loader = select(DataLoader(Numbered(8), 4), sb.traditional(), with_selection=True)
    for _, selection in loader:
        loader.record(selection, torch.ones(4))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("leftovers", sb.Leftovers)
def test_at_an_epochs_end_exactly_what_was_left_out_is_scored_and_not_handed_out(
    leftovers, workers
):
    scorer = sb.scorers.Recorded(rescore=sb.scorers.Forward())
    options = {"leftovers": leftovers}
    loop = Loop(strategy(scorer, HARDEST), 22, workers=workers, options=options)
    for _ in range(4):
        loop.data.reads.zero_()
        before, waited = loop.loader.stats, loop.waiting()
        loop.epoch()
        after, waits = loop.loader.stats, loop.waiting()
        came = {*loop.sampler.passes[-1]} | {*waited}
        left_out = came - {*loop.trained[-1]} - {*waits}
        assert sorted(loop.scored[-1]) == sorted(left_out)
        assert after.scored - before.scored == len(left_out)
        assert after.loaded - before.loaded == len(left_out) + len(loop.trained[-1])
        assert after.loaded - before.loaded == loop.data.reads.sum()
        assert after.kept - before.kept == len(loop.trained[-1])
    observed = loop.loader.ledger.scored.observe()
    assert all(observed.epochs[0, index] == 3 for index in loop.scored[-1])
