"""The pipeline of one epoch: draw, load, score, select, hand out."""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from selective_backprop._batches.losses import check_losses
from selective_backprop._batches.mixed_targets import warn_of_mixtures
from selective_backprop._core.stats import Stats, Tally
from selective_backprop._core.stopwatch import charged
from selective_backprop._core.types import NO_TARGET, Scores
from selective_backprop._memory.history import History
from selective_backprop._memory.ledger import to_host
from selective_backprop._pipeline.candidate_loader import CandidateLoader
from selective_backprop._pipeline.gate_feed import GateFeed
from selective_backprop._pipeline.lockstep import LockstepBatches
from selective_backprop._pipeline.nonfinite import FiniteGuard
from selective_backprop._pipeline.options import LoaderOptions
from selective_backprop._pipeline.phases import SCORED, PhasePlanner
from selective_backprop._pipeline.resume_point import (
    NO_INDICES,
    Cursor,
    EpochStart,
    MidEpochState,
    Reach,
)
from selective_backprop._pipeline.rows import BufferState, Leftovers, Rows
from selective_backprop._pipeline.score_memory import ScoreMemory
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._sampling.schedule import Phase
from selective_backprop.scorers import Needs, RunningScorer
from selective_backprop.scorers._abstract import overrides
from selective_backprop.selectors import RunningSelector

Waiting: TypeAlias = Callable[[], Scores] | None


class PipelineState(NamedTuple):
    """The state of a pipeline between two batches."""

    cursor: Cursor
    waits: BufferState  # the contents of the row buffer
    plain: bool  # whether the full batches in it are made without a draw
    held: Rows | None  # a batch kept when another rank ended an epoch; it goes first
    skipped: int  # rows skipped so far because their losses were not finite
    drawn: int  # candidate batches that every rank has drawn; 0 for a single process


@dataclass(eq=False)
class Pipeline:
    """The stages between a data loader and a training loop."""

    candidate_loader: CandidateLoader  # stage one, and loading
    clock: PhasePlanner
    selector: RunningSelector  # told at an epoch's start how far training is
    scorer: RunningScorer | None  # stage two; None if nothing is scored
    needs: Needs  # of the scorer
    feed: GateFeed | None
    memory: ScoreMemory | None  # of each example; None if nothing is remembered
    history: History | None  # recent scores; None if none are ranked
    finite: FiniteGuard
    buffer: SelectionBuffer  # stages three and four
    lockstep: LockstepBatches | None  # None for a single process
    options: LoaderOptions
    # Whether the scorer scores some candidates twice. These are counted.
    checks: bool = field(init=False)
    scoring: AbstractContextManager[None] = field(init=False)
    selecting: AbstractContextManager[None] = field(init=False)
    cursor: Cursor = field(default=Cursor(), init=False)  # the consumer's position
    # Whether a gate observes the batches that the row buffer is handing out.
    plain: bool = field(default=False, init=False)
    tally: Tally = field(default_factory=Tally, init=False)  # the counts so far
    # Whether another rank has ended the epoch, so that nothing is handed out any more.
    _finishing: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.checks = self.scorer is not None and overrides(self.scorer, "checked")
        self.scoring = charged(self.options.stopwatch, "score")
        self.selecting = charged(self.options.stopwatch, "select")
        if self.lockstep is not None:
            self.lockstep.position = self.drawn

    def run(self, epoch: int, mid_epoch: MidEpochState | None = None) -> Iterator[Rows]:
        """Yield the training batches of one epoch; continue it if `mid_epoch` says how it began."""
        begin, batches = partial(self._open, epoch, mid_epoch), self._fill()
        lockstep, memory = self.lockstep, self.memory
        finish = partial(self._finish, batches) if self.needs.rescores else None
        teaches = self.scorer is not None and overrides(self.scorer, "learn")
        try:
            if lockstep is None:
                begin()
            for rows in batches if lockstep is None else lockstep.take(begin, batches, finish):
                if teaches:
                    with self.scoring:
                        self.scorer.learn(rows.batch)
                if memory is not None and rows.indices is not None:
                    memory.handed += 1
                    memory.writer.hand_out(rows.indices)
                yield rows
        finally:
            self.candidate_loader.close()
            if memory is not None:
                memory.close()
        leftovers = self.options.leftovers
        if lockstep is not None and lockstep.cut and leftovers is not Leftovers.CARRY:
            held, lockstep.held = lockstep.held, None
            more = len(self.cursor.unscored) + (0 if held is None else held.count)
            self.buffer.state = self.buffer.state.after_epoch(leftovers, more)
            waits = self.cursor.buffer.after_epoch(leftovers)
            self.cursor = self.cursor._replace(buffer=waits, unscored=NO_INDICES)

    def drawn(self) -> int:
        """Return how many candidate batches this rank has drawn since training began."""
        batches = self.clock.progress.source.batches or 0
        return max(0, self.cursor.epoch) * batches + self.cursor.drawn

    @property
    def state(self) -> PipelineState:
        """The consumer's position and the waiting rows."""
        held, drawn = None, 0
        if self.lockstep is not None:
            held, drawn = self.lockstep.held, self.lockstep.drawn
        self.buffer.sift()  # an error may have prevented the draw
        cursor = self.cursor._replace(exempt=0)  # `mid_epoch` joins what this counts
        skipped = self.finite.skipped
        return PipelineState(cursor, self.buffer.state, self.plain, held, skipped, drawn)

    def go_on(self, state: PipelineState, counted: Stats) -> None:
        """Continue from a state that was saved with these counts."""
        device, held = self.options.device, state.held
        self.cursor = state.cursor
        self.tally.update(vars(counted))
        self.buffer.state = state.waits.on_device(device)
        waiting = [rows.scores for rows in state.waits.waiting if rows.scores is not None]
        if any(bool((each == NO_TARGET).any()) for each in waiting):
            self.candidate_loader.watch.mark()
        self.plain = state.plain
        self.finite.skipped = state.skipped
        if self.lockstep is not None:
            self.lockstep.held = held if held is None or device is None else held.on_device(device)
            self.lockstep.drawn = state.drawn

    def mid_epoch(self, start: EpochStart, counted: dict[str, Any]) -> MidEpochState:
        """Return how the running epoch began, as far as resuming at the cursor needs it."""
        epoch_scores = None if self.memory is None else self.memory.epoch_scores
        known, exempt = None, []
        if epoch_scores is not None:
            known, exempt = epoch_scores.known, epoch_scores.exempt[: self.cursor.exempt]
        draw, stream = self.candidate_loader.draw, self.candidate_loader.stream
        streams = None if draw is None else draw.streams
        reach = Reach() if draw is None else draw.reach
        exempted = torch.cat([NO_INDICES, *exempt])
        return MidEpochState(start, counted, streams, stream, known, exempted, reach)

    def _open(self, epoch: int, mid_epoch: MidEpochState | None) -> None:
        """Begin an epoch, or continue it, in all stages."""
        self._finishing = False
        epoch_scores = None
        if self.memory is not None:
            with self.selecting:
                if mid_epoch is None:
                    epoch_scores = self.memory.open(epoch, handed=self.tally["batches"])
                else:
                    epoch_scores = self.memory.reopen(mid_epoch.known, mid_epoch.exempt, epoch)
        if mid_epoch is None:
            # Batches left from the last epoch come before this epoch's own. A state that is saved
            # at one of them must not continue the last epoch's counts.
            self.cursor = self.cursor.opening(epoch)
            self.plain = False
        # A paced selector is told the progress only when an epoch begins; states restore it.
        if mid_epoch is None:
            self.clock.pace(self.selector, epoch)
        self.candidate_loader.open(self.cursor, epoch_scores, mid_epoch)
        self.buffer.open(epoch, anew=mid_epoch is None)

    def _fill(self) -> Generator[Rows]:
        """Send each batch that arrives through its remaining stages."""
        yield from self._hand_out(self.buffer.release())
        tally = self.tally
        # Scores are filed by index, so each row must be a single example.
        by_index = self.needs.indices or self.needs.remembers
        met = tally["loaded"] > 0
        for planned, rows, cursor, begun, _ in self.candidate_loader.run(first=not met):
            if by_index and not met:
                warn_of_mixtures(rows.batch)
            met = True
            if self._finishing:
                if planned is Phase.RESCORE:
                    tally["loaded"] += rows.count
                    self._judge(rows, begun)
                continue
            loaded, phase = rows.count, planned
            if planned is not Phase.PRESELECTED:
                phase, rows = self._examine(planned, rows, begun)
            # Only now: after an error above, a saved state continues with this batch.
            tally["candidates"] += cursor.candidates - self.cursor.candidates
            tally["loaded"] += loaded
            if planned is Phase.SELECT and self.memory is not None:
                tally["expired"] += loaded
            self.cursor = cursor
            if phase is Phase.PRESELECTED:
                yield rows
            elif phase is not Phase.RESCORE:
                # A plain batch may begin with rows that the last draw chose; it counts as plain.
                self.plain = phase is Phase.PLAIN and self.feed is not None
                yield from self._hand_out(self.buffer.route(phase, rows))
        self.plain = False
        if self._finishing:
            self._note_ties()
            return
        end = self.candidate_loader.end
        tally["candidates"] += end.candidates - self.cursor.candidates
        self.cursor = end
        yield from self._hand_out(self.buffer.close(self.options.leftovers))
        self._note_ties()
        self.finite.wait()

    def _note_ties(self) -> None:
        """Note the share of ties among the recent scores; on a GPU, the host waits here.

        What the next epoch reads of the ledger comes with it.
        """
        count = 0 if self.history is None else len(self.history)
        untied = [self.history.untied()] if self.history is not None and count else []
        found = to_host(*untied) if self.memory is None else self.memory.ledger.fetch(*untied)
        if found:
            self.tally["ties"] = 1.0 - int(found[0]) / count

    def _examine(self, planned: Phase, rows: Rows, begun: Waiting) -> tuple[Phase, Rows]:
        """Return the phase of a batch that has arrived, and its rows, with any scores."""
        gate = self.clock.gate
        phase = planned if gate is None else self.clock.on_arrival(planned)
        if gate is not None and phase is not planned and gate.probes():
            gate.observe(self._score(rows, begun))
        if phase in SCORED:
            rows = self._judge(rows, begun)
        elif self.needs.passes and not (self.tally["scored"] or (self.feed and self.feed.taken)):
            # Score the very first batch even in a warm-up, so that wrong losses raise at once and
            # not after a whole epoch. If the loop uses the loader's loss to feed a gate, that loss
            # raises by itself.
            self._score(rows)
        return phase, rows

    def _finish(self, batches: Generator[Rows]) -> None:
        """Score what an epoch has left out that another rank has ended."""
        self._finishing = True
        if (draw := self.candidate_loader.draw) is not None:
            draw.stops = True
        for _ in batches:
            pass

    def _judge(self, rows: Rows, begun: Waiting) -> Rows:
        """Return rows with their scores, if candidates are scored; remember the scores."""
        if self.scorer is None:
            return rows
        scores = self._score(rows, begun)
        rows = Rows(rows.batch, rows.count, rows.indices, scores, rows.weights)
        rows = self.finite.pass_on(rows)
        if rows.scores is None or not rows.count:
            return rows
        if self.clock.gate is not None:
            self.clock.gate.observe(rows.scores)
        if self.memory is not None and rows.indices is not None:
            scores = rows.scores
            if self.candidate_loader.watch.lacking:
                scores = scores.masked_fill(scores == NO_TARGET, torch.nan)
            self.memory.writer.score(rows.indices, scores, self.cursor.epoch)
        return rows

    def _score(self, rows: Rows, begun: Waiting = None) -> Tensor:
        scorer, device = self.scorer, self.options.device
        assert scorer is not None  # only called where there is one
        checked = scorer.checked if self.checks else 0
        with self.scoring:
            scores = scorer.score(rows.batch, rows.indices) if begun is None else begun()
            column = type(scores) is Tensor and scores.shape == (rows.count,)
            if not column or not scores.is_floating_point():
                scores = check_losses(scores, rows.count)  # raises, or turns counts into floats
            scores = scores.detach()
            if self.lockstep is not None or scores.dtype in (torch.float16, torch.bfloat16):
                scores = scores.float()  # ranks exchange float32; half precision makes many ties
            if device is not None:
                # Draws run on the rows' device; a model on several devices may score elsewhere.
                scores = scores.to(device)
        self.tally["scored"] += rows.count
        if self.checks:
            self.tally["checked"] += scorer.checked - checked
        return scores

    def _hand_out(self, batches: Iterator[Rows]) -> Iterator[Rows]:
        while not self._finishing:
            with self.selecting:
                rows = next(batches, None)
            if rows is None:
                return
            yield rows._replace(plain=True) if self.plain else rows
