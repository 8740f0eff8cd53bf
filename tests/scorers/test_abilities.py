"""What a scorer can do is said in its needs and done by a method; a contradiction is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fixture_doors import Numbered, losses_by_number, select
from fixture_parts import Stateless
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


def door(scorer: sb.scorers.AbstractScorer) -> sb.SelectiveLoader:
    strategy = sb.Strategy("own", scorer, sb.selectors.Top(1 / 4))
    return select(DataLoader(Numbered(32), 8), strategy, batch_size=2)


MEMORY = sb.scorers.Needs(remembers=True)
CONTRADICTIONS = {
    "remembers without recall": (Plain, MEMORY, r"remembers=True.*Plain has no recall\(\)"),
    "learns without learn": (
        *(Plain, sb.scorers.Needs(learns=True), r"learns=True.*Plain has no learn\(\)"),
    ),
    "defers without begin": (
        *(Plain, sb.scorers.Needs(defers=True), r"defers=True.*Plain has no begin\(\)"),
    ),
    "recall unsaid": (Recalls, sb.scorers.Needs(), r"Recalls has recall\(\).*add remembers=True"),
    "learn unsaid": (Learns, sb.scorers.Needs(), r"Learns has learn\(\).*add learns=True"),
    "begin unsaid": (Defers, sb.scorers.Needs(), r"Defers has begin\(\).*add defers=True"),
}


@pytest.mark.parametrize(
    ("running", "needs", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS
)
@pytest.mark.parametrize("wrap", [lambda scorer: scorer, sb.scorers.Stale], ids=["bare", "wrapped"])
def test_a_contradiction_is_refused_when_the_loader_is_built(running, needs, message, wrap):
    try:
        scorer = wrap(Spec(running(), needs))
    except sb.ConfigurationError as error:
        assert "wrap one" in str(error)  # noqa: PT017
        return
    with pytest.raises(sb.ConfigurationError, match=message):
        door(scorer)


def test_a_step_refuses_a_contradiction_too():
    strategy = sb.Strategy("own", Spec(Learns()), sb.selectors.Top(1 / 4))
    with pytest.raises(sb.ConfigurationError, match="add learns=True"):
        sb.SelectiveStep(nn.Identity(), nn.CrossEntropyLoss(), strategy)


def test_what_start_returns_must_be_at_work():
    with pytest.raises(sb.ConfigurationError, match="returned a dict"):
        door(Spec({}))


def test_a_scorer_that_remembers_is_asked_and_what_it_rules_out_is_never_loaded():
    loader = door(Spec(Recalls(), MEMORY))
    list(loader)
    before = loader.stats
    kept = [number for _, numbers in loader for number in numbers.tolist()]
    since = loader.stats.since(before)
    assert (since.candidates, since.scored, since.loaded) == (32, 0, 8)
    assert kept == [6, 7, 14, 15, 22, 23, 30, 31]


@pytest.mark.parametrize("wrap", [lambda scorer: scorer, sb.scorers.Stale], ids=["bare", "wrapped"])
def test_a_scorer_that_learns_is_taught_each_training_batch(wrap):
    running = Learns()
    handed = [
        numbers.tolist() for _, numbers in door(wrap(Spec(running, sb.scorers.Needs(learns=True))))
    ]
    assert len(handed) == 4
    assert running.taught == handed


def test_a_scorer_that_defers_is_begun_ahead():
    loader = door(Spec(Defers(), sb.scorers.Needs(defers=True)))
    next(iter(loader))
    assert loader.stats.scored == 8
    assert [len(numbers) for _, numbers in loader] == [2] * 4
