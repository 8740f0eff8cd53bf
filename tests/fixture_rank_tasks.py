"""What ranks are asked to do: numbered examples, each rank its own shard."""

import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from fixture_doors import Noting, Numbered, losses_by_number, numbers, select
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader

import selective_backprop as sb

warnings.simplefilter("ignore", sb.SelectionWarning)  # small numbers cannot come near a rate

NO_WARMUP, FORWARD = sb.Schedule(), sb.scorers.Forward()


@dataclass(frozen=True)
class Case:
    """A training of several ranks.

    Attributes:
        shards: examples of each rank.
        selector: draws.
        scorer: how candidates are scored; None to draw them before loading.
        loads: rows of a candidate batch.
        trains: rows of a training batch.
        leftovers: what becomes of what is left.
        schedule: when selection acts.
        breaks: for each epoch, after how many batches the loop breaks off; None for never.
    """

    shards: tuple[int, ...]
    selector: sb.selectors.AbstractSelector
    scorer: sb.scorers.AbstractScorer | None = FORWARD
    loads: int = 4
    trains: int = 4
    leftovers: str = "carry"
    schedule: sb.Schedule = NO_WARMUP
    breaks: tuple[int | None, ...] = (None, None)

    @property
    def window(self) -> int:
        return max(self.trains, round(self.trains / self.selector.terms.rate))

    @property
    def examples(self) -> int:
        return sum(self.shards)

    def shard(self, rank: int) -> range:
        start = sum(self.shards[:rank])
        return range(start, start + self.shards[rank])


@dataclass
class Turn:
    """What a rank saw between two exchanges.

    Attributes:
        filed: the scores that it drew from.
        batch: the examples it then trained on; None where the epoch ended.
        recent: the history after it, as it lies in memory.
    """

    filed: list[float]
    batch: list[int] | None
    recent: list[float]


@dataclass
class EpochReport:
    """What a rank saw of an epoch."""

    turns: list[Turn] = field(default_factory=list)
    lengths: list[int | None] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    opening: int = 0
    cut: bool = False
    stats: sb.Stats | None = None
    unselected: int = 0
    waiting: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Drawing(sb.selectors.AbstractSelector):
    """Selects as another selector does, and notes what it was given."""

    inner: sb.selectors.AbstractSelector
    scores: list[float] = field(default_factory=list, repr=False)

    @property
    def terms(self) -> sb.selectors.Terms:
        return self.inner.terms

    def start(self, context: sb.selectors.Context) -> sb.selectors.RunningSelector:
        running = self.inner.start(context)

        def rule(
            scores: Tensor, history: sb.selectors.History, generator: torch.Generator
        ) -> sb.selectors.Choice:
            self.scores.extend(scores.tolist())
            return running.select(scores, history, generator)

        return sb.selectors.Stateless(rule)


def rank_now() -> int:
    return distributed.get_rank()


@contextmanager
def noted_messages() -> Iterator[list[int]]:
    """Yields the bytes of each message this rank sends while the body runs."""
    sent: list[int] = []
    gather = distributed.all_gather

    def noting(told: list[Tensor], message: Tensor, **options: Any) -> Any:
        sent.append(message.nbytes)
        return gather(told, message, **options)

    distributed.all_gather = noting
    try:
        yield sent
    finally:
        distributed.all_gather = gather


def door_of(case: Case, selector: sb.selectors.AbstractSelector) -> sb.SelectiveLoader:
    loader = DataLoader(Numbered(case.examples), case.loads, sampler=case.shard(rank_now()))
    return select(
        loader,
        sb.Strategy("noted", case.scorer, selector, case.schedule),
        batch_size=case.trains,
        epochs=len(case.breaks) + 3,
        leftovers=case.leftovers,
        with_selection=True,
    )


def train_numbered(case: Case) -> list[EpochReport]:
    """Train by a case, and report every turn."""
    noting = Noting(case.selector)
    drawing = Drawing(noting)
    door = door_of(case, drawing)
    return [_epoch(door, drawing, noting, stop) for stop in case.breaks]


def _epoch(
    door: sb.SelectiveLoader, drawing: Drawing, noting: Noting, stop: int | None
) -> EpochReport:
    report = EpochReport()
    with noted_messages() as sent:
        batches = iter(door)
        while True:
            drawing.scores.clear()
            found = next(batches, None)
            history = door._parts.history
            recent = [] if history is None else history.recent.tolist()
            ids = None
            if found is not None:
                batch, selection = found
                ids = batch[1].tolist()
                door.record(selection, losses_by_number(None, batch))
            report.turns.append(Turn(list(drawing.scores), ids, recent))
            if ids is None or len(report.turns) == stop:
                break
            report.lengths.append(length(door))
    turns = len(report.turns)
    report.sent, report.opening = sent[-turns:], len(sent) - turns
    report.cut = ids is None and door._parts.cut
    report.stats = door.stats
    report.unselected = sum(noting.unselected)
    state = door.state_dict()
    report.waiting = [
        number
        for stage in (state["cursor"]["index_buffer"], state["row_buffer"], state["held"])
        for kind in ("waiting", "chosen")
        for rows in stage[kind]
        for number in (rows[0] if rows[2] is None else rows[2]).tolist()
    ] + state["cursor"]["unscored"].tolist()
    return report


def length(door: sb.SelectiveLoader) -> int | None:
    try:
        return len(door)
    except TypeError:
        return None


def plain_case(**options: Any) -> Case:
    return Case(
        **({"shards": (24, 24), "selector": sb.selectors.Percentile(1.0, "exact", 16)} | options)
    )


def fail_while_scoring(rank: int, batches: int) -> list[list[int]]:
    """Let one rank meet a loss that is no number, after so many batches."""
    case = plain_case()
    calls = 0

    def losses(model: nn.Module, batch: Any) -> Tensor:
        nonlocal calls
        calls += 1
        scores = losses_by_number(model, batch)
        return scores * torch.nan if rank_now() == rank and calls > 2 * batches else scores

    loader = DataLoader(Numbered(case.examples), case.loads, sampler=case.shard(rank_now()))
    return numbers(
        select(loader, sb.Strategy("noted", sb.scorers.Forward(), case.selector), losses=losses)
    )


def break_off_alone(rank: int) -> None:
    """Let one rank leave its loop, and begin another one."""
    door = door_of(plain_case(), sb.selectors.Percentile(1.0))
    for _ in door:
        if rank_now() == rank:
            break
    list(door)


def build_differently(options: dict[str, Any]) -> None:
    """Train on ranks that were built with options of their own."""
    case = plain_case(**{name: value[rank_now()] for name, value in options.items()})
    list(door_of(case, case.selector))


def number_differently() -> None:
    door = door_of(plain_case(), sb.selectors.Percentile(1.0))
    door.set_epoch(rank_now())
    list(door)


def load_the_other_rank_s(rank: int) -> None:
    """Load what rank 0 saved."""
    door = door_of(plain_case(), sb.selectors.Percentile(1.0))
    state = [door.state_dict()]
    distributed.broadcast_object_list(state, src=rank)
    door.load_state_dict(state[0])


def die(rank: int, batches: int) -> list[int]:
    """Let one rank be killed after so many batches."""
    seen: list[int] = []
    for batch, _ in door_of(plain_case(shards=(80, 80)), sb.selectors.Percentile(1.0)):
        seen += batch[1].tolist()
        if rank_now() == rank and len(seen) == 4 * batches:
            os.kill(os.getpid(), signal.SIGKILL)
    return seen


def stay_away(rank: int) -> list[Any]:
    """Let one rank have a loader, and never ask it for a batch."""
    door = door_of(plain_case(), sb.selectors.Percentile(1.0))
    return [] if rank_now() == rank else list(door)


def resume_held(case: Case) -> tuple[int, list[list[int]], list[list[int]]]:
    """Go on after an epoch in the same loader, and in one that loads its state."""
    door = door_of(case, case.selector)
    list(door)
    again = door_of(case, case.selector)
    again.load_state_dict(door.state_dict())
    held = door._parts.held
    found = [[batch[1].tolist() for _ in range(2) for batch, _ in one] for one in (door, again)]
    return 0 if held is None else held.count, *found
