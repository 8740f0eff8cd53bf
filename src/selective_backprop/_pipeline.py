"""One epoch's way through the funnel: drawn, loaded, scored, selected, handed out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from selective_backprop._batches import Layout, check_layout, count_rows, move_batch
from selective_backprop._draw import DrawState, IndexDraw, PhaseClock, Ticket
from selective_backprop._errors import BatchError, LoaderError
from selective_backprop._finite import FiniteGuard
from selective_backprop._funnel import Funnel, Leftovers, Rows
from selective_backprop._gate import RunningGate
from selective_backprop._losses import check_losses
from selective_backprop._memory import Memory
from selective_backprop._schedule import Phase
from selective_backprop._stopwatch import Stopwatch
from selective_backprop.scorers import Agreeing, Learning, RunningScorer
from selective_backprop.selectors import Paced, RunningSelector

END = object()


@dataclass
class Position:
    """How far the consumer has come, whatever workers have prefetched beyond it.

    Attributes:
        epoch: the running epoch's number; -1 before the first.
        drawn: candidate batches of this epoch that have arrived.
        draw: where the drawing of indices stood at the last of them.
        met: whether any batch has arrived, so that its layout is known to fit.
        scored: whether any batch has been scored, so that scoring is known to work.
    """

    epoch: int = -1
    drawn: int = 0
    draw: DrawState = field(default_factory=DrawState)
    met: bool = False
    scored: bool = False


@dataclass(frozen=True)
class Pipeline:
    """The stages between a data loader and a training loop.

    Attributes:
        candidates: yields candidate batches, drawing their indices through `draw`.
        draw: stage one; None for a stream, whose phases are decided as batches arrive.
        clock: says which phase a batch of a stream falls into.
        selector: stage three, told at an epoch's start how far training is.
        scorer: stage two; None where nothing is scored.
        gate: whether selection pays yet, judged from scores; None where it always acts.
        memory: what is remembered of each example; None where nothing is.
        finite: what happens to scores that are not finite.
        funnel: stages three and four.
        layout: how rows are counted.
        leftovers: what becomes of what is left at an epoch's end.
        tries: whether the first batch is scored whatever its phase.
        counts: whether every batch's rows are counted against its indices.
        device: where candidates go, or None to leave them.
        stopwatch: charged with the seconds of each stage, or None.
    """

    candidates: DataLoader[Any]
    draw: IndexDraw | None
    clock: PhaseClock
    selector: RunningSelector
    scorer: RunningScorer | None
    gate: RunningGate | None
    memory: Memory | None
    finite: FiniteGuard
    funnel: Funnel
    layout: Layout
    leftovers: Leftovers
    tries: bool
    counts: bool
    device: torch.device | None
    stopwatch: Stopwatch | None

    def run(self, epoch: int, position: Position, count: Callable[..., None]) -> Iterator[Rows]:
        """Yield the training batches of one epoch.

        Args:
            epoch: its number.
            position: where the consumer stands; moved along.
            count: called with increments of `Stats` fields by name.
        """
        knowledge = None
        if self.memory is not None:
            with self.phase("select"):
                knowledge = self.memory.open(epoch, trained=position.met)
        position.epoch, position.drawn = epoch, 0
        if self.draw is not None:
            self.draw.open(epoch, position.draw, knowledge)
        if isinstance(self.selector, Paced):
            self.selector.begin(self.clock.progress(epoch, 0) or 0.0)
        self.funnel.open(epoch)
        try:
            for rows in self._fill(position, count):
                if isinstance(self.scorer, Learning):
                    with self.phase("score"):
                        self.scorer.learn(rows.batch)
                if self.memory is not None and rows.indices is not None:
                    self.memory.ledger.count(rows.indices)
                yield rows
        finally:
            if self.memory is not None:
                self.memory.close()
        self.finite.settle()

    def _fill(self, position: Position, count: Callable[..., None]) -> Iterator[Rows]:
        """Take what arrives through the stages that are left to it."""
        yield from self._timed(self.funnel.resume())
        for phase, rows in self._arrivals(position, count):
            if phase is Phase.CHOSEN:
                yield rows
                continue
            if phase is Phase.SELECT and self.gate is not None and not self.gate.is_open:
                phase = Phase.PLAIN
                if self.gate.probes():
                    self.gate.observe(self._score(rows, position, count))
            if phase in (Phase.SELECT, Phase.RESCORE):
                rows = self._judge(rows, position, count)
            elif self.tries and not position.scored:
                # The very first batch is scored even in a warm-up: what is wrong with the losses
                # is said at once, and not when a whole epoch has been trained.
                self._score(rows, position, count)
            if phase is not Phase.RESCORE:
                yield from self._timed(self.funnel.route(phase, rows))
        yield from self._timed(self.funnel.close(self.leftovers))

    def _judge(self, rows: Rows, position: Position, count: Callable[..., None]) -> Rows:
        """Return rows with their scores, if candidates are scored, and remember them."""
        if self.scorer is None:
            return rows
        rows = self.finite.pass_on(replace(rows, scores=self._score(rows, position, count)))
        if rows.scores is None or not rows.count:
            return rows
        if self.gate is not None:
            self.gate.observe(rows.scores)
        if self.memory is not None and rows.indices is not None:
            self.memory.ledger.scored.file(rows.indices, rows.scores, position.epoch)
        return rows

    def _arrivals(
        self, position: Position, count: Callable[..., None]
    ) -> Iterator[tuple[Phase, Rows]]:
        """Yield loaded batches with their phase; `CHOSEN` where nothing is left to decide."""
        batches = iter(self.candidates)
        known = 0
        while True:
            with self.phase("load"):
                batch = next(batches, END)
                if batch is END:
                    break
                if self.device is not None:
                    batch = move_batch(batch, self.device)
            if not position.met:
                check_layout(batch, self.layout)
                position.met = True
            if self.draw is None or self.draw.unlisted:
                phase, rows = self._meet_stream(batch, position)
                new = rows.count
            else:
                ticket = self._next_ticket(self.draw)
                phase, rows = ticket.phase, self._meet_ticket(batch, ticket)
                new, known = ticket.candidates - known, ticket.candidates
                position.drawn, position.draw = ticket.drawn, ticket.state
            old = rows.count if phase is Phase.SELECT and self.memory is not None else 0
            count(candidates=new, loaded=rows.count, expired=old)
            yield phase, rows
        if self.draw is not None and not self.draw.unlisted:
            drawn, position.drawn = self.draw.position
            position.draw = self.draw.state
            count(candidates=drawn - known)

    def _next_ticket(self, draw: IndexDraw) -> Ticket:
        if not draw.tickets:
            raise LoaderError(
                f"the loader ({type(self.candidates).__name__}) yielded a batch without drawing "
                "its indices, so the batch cannot be paired with them; a loader that overrides "
                "iteration must draw from its batch_sampler"
            )
        return draw.tickets.popleft()

    def _meet_ticket(self, batch: Any, ticket: Ticket) -> Rows:
        rows = ticket.rows
        if self.counts:
            count_rows(batch, self.layout, rows.count)
        indices = rows.batch if isinstance(rows.batch, Tensor) else None
        return Rows(
            batch,
            rows.count,
            indices=self._to_device(indices),
            weights=self._to_device(rows.weights),
        )

    def _meet_stream(self, batch: Any, position: Position) -> tuple[Phase, Rows]:
        try:
            rows = Rows(batch, count_rows(batch, self.layout))
        except BatchError:
            if self.counts:
                raise
            rows = Rows(batch, 0)  # passed on unseen: nobody needs to know its rows
        phase = self.clock.phase(position.epoch, position.drawn, rows.count)
        position.drawn += 1
        position.draw = position.draw._replace(interludes=self.clock.interludes.state)
        return phase, rows

    def _score(self, rows: Rows, position: Position, count: Callable[..., None]) -> Tensor:
        assert self.scorer is not None  # whoever scores has one
        checked = self._checked
        with self.phase("score"):
            scores = check_losses(self.scorer.score(rows.batch, rows.indices), rows.count).detach()
            if scores.dtype in (torch.float16, torch.bfloat16):
                scores = scores.float()
            if self.device is not None:
                # The rows' device draws; a model that spans devices may score on another.
                scores = scores.to(self.device)
        position.scored = True
        count(scored=rows.count, checked=self._checked - checked)
        return scores

    @property
    def _checked(self) -> int:
        return self.scorer.checked if isinstance(self.scorer, Agreeing) else 0

    def _to_device(self, column: Tensor | None) -> Tensor | None:
        if column is None or self.device is None:
            return column
        return column.to(self.device, non_blocking=True)

    def _timed(self, stage: Iterator[Rows]) -> Iterator[Rows]:
        while True:
            with self.phase("select"):
                rows = next(stage, None)
            if rows is None:
                return
            yield rows

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Charge the body to a phase of the stopwatch, if there is one."""
        return nullcontext() if self.stopwatch is None else self.stopwatch.phase(name)
