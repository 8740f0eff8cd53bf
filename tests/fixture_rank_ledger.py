"""What ranks are asked to do with strategies that remember examples."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from fixture_doors import Numbered
from fixture_rank_tasks import length, noted_messages, rank_now
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler

import selective_backprop as sb

EXAMPLES = 49  # an odd one, which the sampler deals out twice
Noted = list[tuple[int, float]]


@dataclass
class Remembered:
    """What a rank saw and did.

    Attributes:
        scored: which examples it scored, and what it found, by epoch.
        recorded: which it recorded, and as what, by epoch.
        batches: the examples of each batch, by epoch.
        columns: scores and epochs that the ledger has of its shard, scored and recorded.
        selected: how often, by the ledger, each example of its shard was trained on.
        messages: the bytes of each message that was sent.
    """

    scored: list[Noted] = field(default_factory=list)
    recorded: list[Noted] = field(default_factory=list)
    batches: list[list[list[int]]] = field(default_factory=list)
    columns: list[tuple[list[float], list[int]]] = field(default_factory=list)
    selected: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)


class Loop:
    """A user's loop on one rank, whose losses differ from rank to rank and epoch to epoch."""

    def __init__(self, strategy: sb.Strategy, **options: Any) -> None:
        self.seen = Remembered()
        self.watch: Callable[[], None] = lambda: None
        data = Numbered(EXAMPLES)
        self.sampler = DistributedSampler(data, seed=3)
        self.door = sb.SelectiveLoader(
            DataLoader(data, 4, sampler=self.sampler),
            nn.Identity(),
            None,
            strategy,
            losses=self.losses,
            with_selection=True,
            generator=torch.Generator().manual_seed(rank_now()),
            **options,
        )

    def losses(self, model: nn.Module, batch: Any) -> Tensor:
        scores = self.values(batch[1], 0.137)
        self.seen.scored[-1] += zip(batch[1].tolist(), scores.tolist(), strict=True)
        return scores

    def values(self, numbers: Tensor, shift: float) -> Tensor:
        place = 0.31 * rank_now() + shift * (len(self.seen.batches) + 1)
        return torch.frac((numbers + 1) * 0.6180339887 + place).float()

    def epoch(self, stop: int | None = None) -> None:
        self.seen.scored.append([])
        self.seen.recorded.append([])
        self.seen.batches.append([])
        self.door.set_epoch(len(self.seen.batches) - 1)
        for batch, selection in self.door:
            self.seen.batches[-1].append(selection.indices.tolist())
            losses = self.values(batch[1], 0.271)
            self.door.record(selection, losses)
            self.seen.recorded[-1] += zip(batch[1].tolist(), losses.tolist(), strict=True)
            self.watch()
            if len(self.seen.batches[-1]) == stop:
                break

    def report(self) -> Remembered:
        """Merge what was noted, by opening one more epoch, and look into the ledger."""
        self.epoch(stop=1)
        ledger = self.door._parts.ledger
        if ledger is None:
            return self.seen
        for column in (ledger.scored, ledger.recorded):
            found = column.observe()
            self.seen.columns.append((found.scores[0].tolist(), found.epochs[0].tolist()))
        self.seen.selected = ledger.selected.tolist()
        return self.seen


def remember(strategy: sb.Strategy, epochs: int, at_most: int, options: dict) -> Remembered:
    """Train; a ledger of more than `at_most` bytes is shared out among the ranks."""
    with mock.patch("selective_backprop._memory.pending_updates.MOST_GATHERED", at_most):
        loop = Loop(strategy, **options)
    with noted_messages() as sent:
        for _ in range(epochs):
            loop.epoch()
    loop.seen.messages = sent
    return loop.report()


def resume(strategy: sb.Strategy, stop: int) -> tuple[list[list[list[int]]], ...]:
    """Break off in the second epoch; go on in the same loop, and in one that loads its state."""
    loop = Loop(strategy)
    loop.epoch()
    loop.epoch(stop)
    state = loop.door.state_dict()
    again = Loop(strategy)
    again.seen.batches = [[], []]
    again.door.load_state_dict(state)
    for each in (loop, again):
        each.epoch()
        each.epoch()
    return loop.seen.batches[2:], again.seen.batches[2:]


def go_on(
    strategy: sb.Strategy, stop: int, at_most: int, options: dict
) -> tuple[Remembered, Remembered, list[int | None]]:
    """Train three epochs; and once more from a state of the middle of the second."""
    with mock.patch("selective_backprop._memory.pending_updates.MOST_GATHERED", at_most):
        loop, again = Loop(strategy, **options), Loop(strategy, **options)
    states, lengths = [], []
    loop.watch = lambda: states.append(loop.door.state_dict())
    for _ in range(3):
        loop.epoch()
    state = states[len(loop.seen.batches[0]) + stop - 1]
    again.door.load_state_dict(pack_and_unpack(state))
    done = loop.seen.batches[1][:stop]
    again.seen = Remembered(scored=[[]], recorded=[[]], batches=[loop.seen.batches[0]])
    again.watch = lambda: lengths.append(length(again.door))
    for _ in range(2):
        again.epoch()
    again.seen.batches[1] = done + again.seen.batches[1]
    return loop.report(), again.report(), lengths


def go_on_alone() -> None:
    """Load a state of the middle of an epoch on rank 0, and one of its beginning on the others."""
    strategy = sb.Strategy("everything", None, sb.selectors.Everything())
    loop, again = Loop(strategy), Loop(strategy)
    loop.epoch()
    states = [loop.door.state_dict()]
    loop.watch = lambda: states.append(loop.door.state_dict())
    loop.epoch()
    again.door.load_state_dict(states[2 if rank_now() == 0 else 0])
    again.seen.batches = [[]]
    again.epoch()


def pack_and_unpack(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def fail_to_recall(rank: int, at_most: int) -> None:
    """Let one rank fail before its first candidate: what it remembers cannot be recalled."""
    with mock.patch("selective_backprop._memory.pending_updates.MOST_GATHERED", at_most):
        loop = Loop(
            sb.Strategy(
                "stale", sb.scorers.Stale(sb.scorers.Forward()), sb.selectors.Percentile(1.0)
            )
        )
    loop.epoch()
    if rank_now() == rank:
        loop.door._parts.pipeline.memory._scorer = None
    loop.epoch()


def seed_by_rank() -> int:
    """The seed of the draws, on ranks that were given one each."""
    loop = Loop(sb.random_backprop(1 / 2))
    loop.epoch()
    return loop.door.state_dict()["seed"]
