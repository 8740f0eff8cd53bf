"""Batches are taken in ahead where that lets work go on, and nothing else changes by it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import torch
from fixture_loaders import (
    Numbered,
    NumberedStream,
    flat,
    losses_by_number,
    numbers,
    select,
    selective,
)
from fixture_parts import Stateless
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

import selective_backprop as sb
from selective_backprop._pipeline.candidate_loader import move_rows


@dataclass(frozen=True)
class Elsewhere(sb.scorers.AbstractScorer):
    """Scores by number, some batches ahead, and notes what was begun and what was waited for."""

    ahead: int
    begun: list[list[int]] = field(default_factory=list, repr=False)
    waited: list[list[int]] = field(default_factory=list, repr=False)

    @property
    def needs(self) -> sb.scorers.Needs:
        return sb.scorers.Needs()

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        return _RunningElsewhere(self)


class _RunningElsewhere(Stateless, sb.scorers.RunningScorer):
    def __init__(self, spec: Elsewhere) -> None:
        self._spec = spec

    @property
    def ahead(self) -> int:
        return self._spec.ahead

    def begin(self, batch: Any, indices: Tensor | None) -> Callable[[], Tensor]:
        names = batch[1].tolist()
        self._spec.begun.append(names)

        def wait() -> Tensor:
            self._spec.waited.append(names)
            return losses_by_number(torch.nn.Identity(), batch)

        return wait

    def score(self, batch: Any, indices: Tensor | None) -> Tensor:
        return self.begin(batch, indices)()


def loaders(ahead: int, data: Any = None, **options: Any) -> tuple[sb.SelectiveLoader, Elsewhere]:
    """Return a loader that scores ahead, with a shuffle of its own, and its scorer."""
    data = Numbered(48) if data is None else data
    shuffled = {}
    if not isinstance(data, NumberedStream):
        generator = torch.Generator().manual_seed(3)
        sampler = RandomSampler(data, generator=generator)
        shuffled["batch_sampler"] = BatchSampler(sampler, 4, drop_last=False)
    scorer = Elsewhere(ahead)
    options = {"warmup_epochs": 0} | options
    workers = options.pop("workers", 0)
    loader = DataLoader(data, num_workers=workers, **(shuffled or {"batch_size": 4}))
    return select(loader, sb.selective_backprop(1 / 2, scorer=scorer, **options)), scorer


def as_without(ahead: int, **options: Any) -> list[list[list[list[int]]]]:
    """Return the batches of three epochs, scored ahead and in their turn."""
    found = []
    for number in (ahead, 0):
        loader, _ = loaders(number, **options)
        found.append([numbers(loader) for _ in range(3)])
    return found


ORDINARY = {
    "plain": {},
    "warm-up": {"warmup_epochs": 1},
    "coins": {"draw": "bernoulli"},
    "stream": {"data": NumberedStream(44)},
}


@pytest.mark.parametrize(
    ("options", "ahead"),
    [*product(ORDINARY.values(), [1, 3, 50]), ({"workers": 2}, 3)],
    ids=[*(f"{name}-{ahead}" for name, ahead in product(ORDINARY, [1, 3, 50])), "workers-3"],
)
def test_scoring_ahead_yields_the_same_batches(options, ahead):
    ours, plain = as_without(ahead, **options)
    assert ours == plain


def test_batches_are_begun_ahead_in_their_order_and_waited_for_in_it():
    loader, scorer = loaders(2)
    batches = iter(loader)
    next(batches)
    assert len(scorer.waited) == 2
    assert len(scorer.begun) == 4
    rest = numbers(batches)
    assert scorer.begun == scorer.waited
    assert len(scorer.begun) == 12
    assert len(rest) == 5


def test_what_needs_no_score_is_not_begun():
    loader, scorer = loaders(3, warmup_epochs=1)
    numbers(loader)
    assert len(scorer.begun) == 1  # the first batch, which tells whether scoring works
    candidates = loader.stats.candidates
    numbers(loader)
    assert loader.stats.scored - 4 == loader.stats.candidates - candidates
    assert loader.stats.scored == sum(map(len, scorer.begun))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_that_breaks_off_forgets_what_it_took_in_ahead(workers):
    selecting, plain = loaders(3, workers=workers)[0], loaders(0, workers=workers)[0]
    for loader in (selecting, plain):
        for number, _ in enumerate(loader):
            if number == 1:
                break
    assert selecting.stats == plain.stats
    assert repr(selecting.state_dict()["position"]) == repr(plain.state_dict()["position"])
    for _ in range(2):
        assert numbers(selecting) == numbers(plain)
    assert selecting.stats == plain.stats


class Failing(Numbered):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.reads.sum() >= 22:
            raise RuntimeError("the disk is gone")
        return super().__getitem__(index)


def until_it_fails(batches: Iterator[Any]) -> list[list[int]]:
    found = []

    def go_on() -> None:
        for batch in batches:
            found.append(batch[1].tolist())

    with pytest.raises(RuntimeError, match="the disk is gone"):
        go_on()
    return found


def test_an_error_comes_in_its_turn_and_what_came_before_it_is_not_lost():
    ours, plain = (until_it_fails(iter(loaders(ahead, data=Failing(48))[0])) for ahead in (4, 0))
    assert ours == plain
    assert len(ours) == 2


def test_scoring_that_waits_its_turn_takes_nothing_in_ahead():
    data = Numbered(48)
    loader = select(DataLoader(data, 4), selective(1 / 2))
    next(iter(loader))
    assert data.reads.sum() == 8


def test_a_closed_gate_begins_only_what_it_probes():
    scorer = Elsewhere(2)
    gate = sb.VarianceGate(0.5, 2, threshold=1e9)
    strategy = sb.Strategy("gated", scorer, sb.selectors.Percentile(1.0), sb.Schedule(gate=gate))
    loader = select(DataLoader(Numbered(48), 4), strategy)
    assert flat(numbers(loader)) == list(range(48))
    assert scorer.begun == scorer.waited
    assert 0 < len(scorer.begun) < 12


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_indices_and_weights_move_together(count, kind):
    indices, weights = torch.arange(count, dtype=kind) + 2**20, torch.rand(count)
    moved = move_rows(indices, weights, torch.device("cpu"))
    assert [each.dtype for each in moved] == [kind, torch.float32]
    assert all(torch.equal(*pair) for pair in zip(moved, (indices, weights), strict=True))
    assert move_rows(None, weights, torch.device("cpu"))[0] is None
    assert move_rows(indices, None, torch.device("cpu"))[1] is None
