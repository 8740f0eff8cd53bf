"""Batches are taken in ahead where that lets work go on, and nothing else changes by it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import fixture_loaders
import pytest
import torch
from fixture_loaders import Numbered, NumberedStream, flat, losses_by_number, numbers, select
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

import selective_backprop as sb


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


class _RunningElsewhere(fixture_loaders.Stateless, sb.scorers.RunningScorer):
    ahead = 0

    def __init__(self, spec: Elsewhere) -> None:
        self.ahead, self._spec = spec.ahead, spec

    def begin(self, batch: Any, indices: Tensor | None) -> Callable[[], Tensor]:
        names = batch[1].tolist()
        self._spec.begun.append(names)

        def wait() -> Tensor:
            self._spec.waited.append(names)
            return losses_by_number(torch.nn.Identity(), batch)

        return wait

    def score(self, batch: Any, indices: Tensor | None) -> Tensor:
        return self.begin(batch, indices)()


def make(ahead: int, data: Any = None, **options: Any) -> tuple[sb.SelectiveLoader, Elsewhere]:
    """Return a loader that scores ahead, with a shuffle of its own, and its scorer."""
    data = Numbered(48) if data is None else data
    drawn: dict[str, Any] = {"batch_size": 4}
    if not isinstance(data, NumberedStream):
        sampler = RandomSampler(data, generator=torch.Generator().manual_seed(3))
        drawn = {"batch_sampler": BatchSampler(sampler, 4, drop_last=False)}
    loader = DataLoader(data, num_workers=options.pop("workers", 0), **drawn)
    scorer, options = Elsewhere(ahead), {"warmup_epochs": 0} | options
    return select(loader, sb.selective_backprop(1 / 2, scorer=scorer, **options)), scorer


ORDINARY = {
    "plain": {},
    "warm-up": {"warmup_epochs": 1},
    "coins": {"draw": "bernoulli"},
    "stream": {"data": NumberedStream(44)},
}


@pytest.mark.parametrize(
    ("options", "ahead"),
    [*product(ORDINARY.values(), [1, 50]), ({"workers": 2}, 3)],
    ids=[*(f"{name}-{ahead}" for name, ahead in product(ORDINARY, [1, 50])), "workers-3"],
)
def test_scoring_ahead_yields_the_same_batches(options, ahead):
    ours, plain = (make(number, **options)[0] for number in (ahead, 0))
    for _ in range(3):
        assert numbers(ours) == numbers(plain)
        assert ours.stats == plain.stats


def test_batches_are_begun_ahead_in_their_order_and_waited_for_in_it():
    loader, scorer = make(2)
    batches = iter(loader)
    next(batches)
    assert len(scorer.waited) == 2
    assert len(scorer.begun) == 4
    rest = numbers(batches)
    assert scorer.begun == scorer.waited
    assert len(scorer.begun) == 12
    assert len(rest) == 5


def test_a_pass_that_breaks_off_forgets_what_it_took_in_ahead():
    loaders = ours, plain = make(3)[0], make(0)[0]
    for loader in loaders:
        assert [batch for _, batch in zip(range(2), loader, strict=False)]
    assert ours.stats == plain.stats
    assert repr(ours.state_dict()["position"]) == repr(plain.state_dict()["position"])
    for _ in range(2):
        assert numbers(ours) == numbers(plain)
    assert ours.stats == plain.stats


class Failing(Numbered):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.reads.sum() >= 22:
            raise RuntimeError("the disk is gone")
        return super().__getitem__(index)


def test_an_error_comes_in_its_turn_and_what_came_before_it_is_not_lost():
    found: list[list[list[int]]] = [[], []]
    for ahead, batches in zip((4, 0), found, strict=True):
        with pytest.raises(RuntimeError, match="the disk is gone"):
            batches.extend(batch[1].tolist() for batch in make(ahead, data=Failing(48))[0])
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_a_closed_gate_begins_only_what_it_probes():
    scorer = Elsewhere(2)
    gate = sb.VarianceGate(0.5, 2, threshold=1e9)
    strategy = sb.Strategy("gated", scorer, sb.selectors.Percentile(1.0), sb.Schedule(gate=gate))
    loader = select(DataLoader(Numbered(48), 4), strategy)
    assert flat(numbers(loader)) == list(range(48))
    assert scorer.begun == scorer.waited
    assert 0 < len(scorer.begun) < 12
