"""What a scorer can do besides scoring is done by a method, and used by the loader."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, Stateless, losses_by_number, select
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb

NOTHING = sb.scorers.Needs()


class Plain(Stateless, sb.scorers.RunningScorer):
    """A user's scorer, which needs no base but this one."""

    def __init__(self) -> None:
        self.taught: list[list[int]] = []

    def score(self, batch: Any, indices: Tensor | None) -> Tensor:
        return losses_by_number(nn.Identity(), batch)


class Recalls(Plain):
    def recall(self, ledger: sb.scorers.Ledger, epoch: int) -> Tensor | None:
        return None if epoch == 0 else torch.arange(float(ledger.examples))


class Learns(Plain):
    def learn(self, batch: Any) -> None:
        self.taught.append(batch[1].tolist())


class Defers(Plain):
    ahead = 2

    def begin(self, batch: Any, indices: Tensor | None) -> Callable[[], Tensor]:
        return lambda: self.score(batch, indices)


@dataclass(frozen=True, eq=False)
class Spec(sb.scorers.AbstractScorer):
    """Says that it needs something, and starts something."""

    running: Any
    needs: sb.scorers.Needs = NOTHING

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        return self.running


def make_loader(scorer: sb.scorers.AbstractScorer) -> sb.SelectiveLoader:
    strategy = sb.Strategy("own", scorer, sb.selectors.Top(1 / 4))
    return select(DataLoader(Numbered(32), 8), strategy, batch_size=2)


MEMORY = sb.scorers.Needs(remembers=True)


@pytest.mark.parametrize(("running", "needs"), [(Plain, MEMORY), (Recalls, NOTHING)])
def test_needs_that_contradict_what_it_can_recall_are_refused(running, needs):
    with pytest.raises(sb.ConfigurationError, match=rf"{running.__name__} has .*recall\(\)"):
        make_loader(Spec(running(), needs))


def test_a_scorer_that_remembers_is_asked_and_what_it_rules_out_is_never_loaded():
    loader = make_loader(Spec(Recalls(), MEMORY))
    list(loader)
    before = loader.stats
    kept = [number for _, numbers in loader for number in numbers.tolist()]
    since = loader.stats.since(before)
    assert (since.candidates, since.scored, since.loaded) == (32, 0, 8)
    assert kept == [6, 7, 14, 15, 22, 23, 30, 31]


@pytest.mark.parametrize("wrap", [lambda scorer: scorer, sb.scorers.Stale], ids=["bare", "wrapped"])
def test_a_scorer_that_learns_is_taught_each_training_batch(wrap):
    running = Learns()
    handed = [numbers.tolist() for _, numbers in make_loader(wrap(Spec(running)))]
    assert len(handed) == 4
    assert running.taught == handed


def test_a_scorer_that_defers_is_begun_ahead():
    loader = make_loader(Spec(Defers()))
    next(iter(loader))
    assert loader.stats.scored == 8
    assert [len(numbers) for _, numbers in loader] == [2] * 4
