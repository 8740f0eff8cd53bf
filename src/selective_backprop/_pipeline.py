"""One epoch's way through the funnel: drawn, loaded, scored, selected, handed out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from selective_backprop._batches import Layout, count_rows, move_batch
from selective_backprop._draw import DrawState, IndexDraw, PhaseClock, Ticket
from selective_backprop._errors import BatchError, LoaderError
from selective_backprop._finite import FiniteGuard
from selective_backprop._funnel import Funnel, FunnelState, Leftovers, Rows
from selective_backprop._losses import check_losses
from selective_backprop._schedule import Phase
from selective_backprop._stopwatch import Stopwatch
from selective_backprop.scorers import RunningScorer

END = object()


@dataclass
class Position:
    """How far the consumer has come, whatever workers have prefetched beyond it.

    Attributes:
        epoch: the running epoch's number; -1 before the first.
        drawn: candidate batches of this epoch that have arrived.
        draw: where the drawing of indices stood at the last of them.
        scored: whether any batch has been scored, so that scoring is known to work.
    """

    epoch: int = -1
    drawn: int = 0
    draw: DrawState = field(default_factory=DrawState)
    scored: bool = False


@dataclass(frozen=True)
class Pipeline:
    """The stages between a data loader and a training loop.

    Attributes:
        candidates: yields candidate batches, drawing their indices through `draw`.
        draw: stage one; None for a stream, whose phases are decided as batches arrive.
        clock: says which phase a batch of a stream falls into.
        scorer: stage two; None where nothing is scored.
        finite: what happens to scores that are not finite.
        funnel: stages three and four.
        layout: how rows are counted.
        leftovers: what becomes of what is left at an epoch's end.
        counts: whether every batch's rows are counted against its indices.
        device: where candidates go, or None to leave them.
        stopwatch: charged with the seconds of each stage, or None.
    """

    candidates: DataLoader[Any]
    draw: IndexDraw | None
    clock: PhaseClock
    scorer: RunningScorer | None
    finite: FiniteGuard
    funnel: Funnel
    layout: Layout
    leftovers: Leftovers
    counts: bool
    device: torch.device | None
    stopwatch: Stopwatch | None

    @property
    def early(self) -> bool:
        """Whether examples are selected before they are loaded."""
        return self.draw is not None and self.draw.funnel is not None and not self.draw.unlisted

    def waits(self, position: Position) -> FunnelState:
        """Return what waits for a full window or batch, as the consumer sees it."""
        return position.draw.funnel if self.early else self.funnel.state

    def run(self, epoch: int, position: Position, count: Callable[..., None]) -> Iterator[Rows]:
        """Yield the training batches of one epoch.

        Args:
            epoch: its number.
            position: where the consumer stands; moved along.
            count: called with increments of `Stats` fields by name.
        """
        position.epoch, position.drawn = epoch, 0
        if self.draw is not None:
            self.draw.open(epoch, position.draw)
        self.funnel.open(epoch)
        yield from self._timed(self.funnel.resume())
        for phase, rows in self._arrivals(position, count):
            if phase is Phase.CHOSEN:
                yield rows
                continue
            if self.scorer is not None and (phase is Phase.SELECT or not position.scored):
                # The very first batch is scored even in a warm-up: what is wrong with the losses
                # is said at once, and not when a whole epoch has been trained.
                scored = self._score(rows, self.scorer)
                count(scored=rows.count)
                position.scored = True
                if phase is Phase.SELECT:
                    rows = self.finite.pass_on(scored)
            yield from self._timed(self.funnel.route(phase, rows))
        if not self.early:
            yield from self._timed(self.funnel.close(self.leftovers))
        self.finite.settle()

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
            if self.draw is None or self.draw.unlisted:
                phase, rows = self._meet_stream(batch, position)
                new = rows.count
            else:
                ticket = self._next_ticket(self.draw)
                phase, rows = self._meet_ticket(batch, ticket)
                new, known = ticket.candidates - known, ticket.candidates
                position.drawn, position.draw = ticket.drawn, ticket.state
            count(candidates=new, loaded=rows.count)
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

    def _meet_ticket(self, batch: Any, ticket: Ticket) -> tuple[Phase, Rows]:
        rows = ticket.rows
        if self.counts:
            count_rows(batch, self.layout, rows.count)
        indices = rows.batch if isinstance(rows.batch, Tensor) else None
        phase = Phase.CHOSEN if self.early else ticket.phase
        return phase, Rows(
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

    def _score(self, rows: Rows, scorer: RunningScorer) -> Rows:
        with self.phase("score"):
            scores = check_losses(scorer.score(rows.batch, rows.indices), rows.count).detach()
            if scores.dtype in (torch.float16, torch.bfloat16):
                scores = scores.float()
            # The rows' device draws; a model that spans devices may have scored on another.
            return replace(rows, scores=scores if self.device is None else scores.to(self.device))

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
