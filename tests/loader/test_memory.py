"""Where scores are remembered, what is not selected is never loaded, and nothing else changes."""

from dataclasses import dataclass, field

import pytest
import torch
from fixture_loaders import (
    bits,
)
from fixture_memory import PREDICTED, SPREAD, STALE, Loop, strategy
from fixture_training import Training
from reference import LossHistory
from torch import Tensor

import selective_backprop as sb

pytestmark = pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")


@pytest.mark.parametrize(
    ("draw", "spread", "workers"),
    [("exact", False, 0), ("exact", True, 2), ("bernoulli", True, 0), ("bernoulli", False, 2)],
)
def test_scores_that_are_good_for_one_epoch_make_selective_backprop_bit_for_bit(
    draw, spread, workers
):
    def train(strategy: sb.Strategy, workers: int = 0) -> tuple:
        training = Training(strategy, workers=workers)
        chosen = [training.epoch() for _ in range(4)]
        return chosen, bits(training.model.state_dict())

    stale = sb.stale_sb(1 / 3, epochs=1, spread=spread, draw=draw)
    assert train(stale, workers) == train(sb.selective_backprop(1 / 3, draw=draw))


@pytest.mark.parametrize(("scorer", "workers"), [(STALE, 2), (PREDICTED, 0)])
def test_in_a_stale_epoch_what_is_not_selected_is_not_even_read(scorer, workers):
    loop = Loop(strategy(scorer), workers=workers, records=False)
    for epoch in range(5):
        reads, before = loop.data.reads.clone(), loop.loader.stats
        loop.epoch()
        read, after = loop.data.reads - reads, loop.loader.stats
        if epoch % 3 == 0:
            assert read.tolist() == [1] * 60
            assert after.scored - before.scored == after.loaded - before.loaded == 60
        else:
            assert sorted(read.nonzero().flatten().tolist()) == sorted(loop.trained[-1])
            assert int(read.max()) == 1
            assert after.scored == before.scored
            assert after.loaded - before.loaded == after.kept - before.kept == 20
        assert after.candidates - before.candidates == 60


@pytest.mark.parametrize(("epochs", "examples"), [(2, 26), (3, 24), (4, 29)])
def test_a_stale_epoch_makes_as_many_updates_as_a_fresh_one(epochs, examples):
    stale = Loop(
        strategy(sb.scorers.Stale(sb.scorers.Forward(), epochs)), examples, records=False
    ).epochs(12)
    fresh = Loop(strategy(sb.scorers.Forward()), examples, records=False).epochs(12)
    assert all(abs(n - m) <= 1 for n, m in zip(stale.batches, fresh.batches, strict=True))
    assert abs(sum(stale.batches) - sum(fresh.batches)) <= 1
    if examples == 24:
        assert stale.batches == [2] * 12


@pytest.mark.parametrize("epochs", [2, 3, 4])
def test_spread_each_epoch_scores_an_equal_share(epochs):
    loop = Loop(strategy(sb.scorers.Stale(sb.scorers.Forward(), epochs, spread=True)), 60).epochs(9)
    assert len(loop.scored[0]) == 60
    for epoch, scored in enumerate(loop.scored[1:], start=1):
        due = [index for index in range(60) if (index + epoch) % epochs == 0]
        assert sorted(scored) == due
    counted = loop.loader._parts.ledger.selected.tolist()
    assert counted == [sum(e.count(i) for e in loop.trained) for i in range(60)]
    assert loop.loader.stats.expired == sum(map(len, loop.scored))


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("epochs", [2, 3])
def test_no_score_is_ever_used_that_is_older_than_it_may_be(spread, epochs):
    loop = Loop(
        strategy(sb.scorers.Stale(sb.scorers.Forward(), epochs, spread=spread)), 50, records=False
    )
    for epoch in range(12):
        taken = loop.loader._parts.ledger.scored.observe().epochs[0]
        waited = loop.waiting()  # with its rows an old score may wait
        loop.epoch(stop=3 if epoch % 4 == 3 else None)
        old = {*loop.trained[-1]} - {*loop.scored[-1]} - {*waited}
        assert all(epoch - taken[index] < epochs for index in old)


def test_losses_that_training_recorded_refresh_the_scores_where_they_may():
    scorer = sb.scorers.Stale(sb.scorers.Forward(), 3, recorded=True)
    loop = Loop(strategy(scorer), options={"leftovers": "drop"}).epochs(4)
    assert sorted(loop.scored[0]) == list(range(60))
    assert loop.scored[1] == loop.scored[2] == []
    recorded = {*loop.trained[1], *loop.trained[2]}
    assert sorted(loop.scored[3]) == sorted({*range(60)} - recorded)
    unread = Loop(strategy(STALE), options={"leftovers": "drop"}).epochs(4)
    assert sorted(unread.scored[3]) == list(range(60))


@dataclass(frozen=True)
class Seen(sb.selectors.AbstractSelector):
    """Ranks like Selective-Backprop, and notes the scores, what they rank against, and the odds."""

    notes: list[tuple[list[float], list[float], list[float]]] = field(
        default_factory=list, repr=False
    )
    inner = sb.selectors.Percentile(2.0)

    @property
    def terms(self) -> sb.selectors.Terms:
        return self.inner.terms

    def start(self, context: sb.scorers.Context) -> sb.selectors.RunningSelector:
        running = self.inner.start(context)

        def rule(
            scores: Tensor, history: sb.selectors.History, generator: torch.Generator
        ) -> sb.selectors.Choice:
            odds = history.percentiles(scores).pow(2.0).tolist()
            self.notes.append((scores.tolist(), history.recent.tolist(), odds))
            return running.select(scores, history, generator)

        return sb.selectors.Stateless(rule)


def test_remembered_scores_rank_against_all_of_their_kind_by_the_papers_rule():
    selector = Seen()
    loop = Loop(strategy(STALE, selector), records=False).epoch()
    known = loop.loader._parts.ledger.scored.observe().scores[0].tolist()
    twin = LossHistory(len(known))
    twin.add(known)
    for _ in range(2):
        selector.notes.clear()
        loop.epoch()
        assert len(selector.notes) == 5
        for scores, past, odds in selector.notes:
            assert sorted(past) == sorted(known)
            assert odds == pytest.approx([twin.percentile(score) ** 2.0 for score in scores])
        drawn = [score for scores, *_ in selector.notes for score in scores]
        assert sorted(drawn) == sorted(known)


def test_fresh_scores_rank_among_fresh_ones_alone():
    selector = Seen()
    loop = Loop(strategy(SPREAD, selector)).epochs(3)
    selector.notes.clear()
    loop.epoch()
    fresh = [past for scores, past, _ in selector.notes if len(past) > 60]
    known = [past for scores, past, _ in selector.notes if len(past) == 40]
    assert len(known) in (3, 4)
    assert all(past == known[0] for past in known)  # as of the epoch's start
    assert len(known) + len(fresh) == len(selector.notes)


@pytest.mark.parametrize("scorer", [STALE, SPREAD])
def test_scores_filed_during_an_epoch_count_from_the_next_one_on(scorer):
    chosen = []
    for meddles in (False, True):
        loop = Loop(strategy(scorer), records=False).epoch()

        def meddle(loader=loop.loader, meddles=meddles) -> None:
            if meddles:
                loader._parts.ledger.scored.file(torch.arange(60), torch.rand(60), 1)

        chosen.append(loop.epoch(each=meddle).trained[1])
        chosen.append(loop.epoch().trained[2])
    assert chosen[0] == chosen[2]
    assert chosen[1] != chosen[3]
