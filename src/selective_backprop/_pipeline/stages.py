"""The pipeline of one epoch: draw, load, score, select, hand out."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from selective_backprop._batches.losses import check_losses
from selective_backprop._batches.mixed_targets import warn_of_mixtures
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.stats import Stats, Tally
from selective_backprop._core.stopwatch import charged
from selective_backprop._core.types import Scores
from selective_backprop._pipeline.candidate_loader import CandidateLoader
from selective_backprop._pipeline.cursor import Cursor, EpochStart
from selective_backprop._pipeline.gate_feed import GateFeed
from selective_backprop._pipeline.lockstep import LockstepBatches
from selective_backprop._pipeline.nonfinite import FiniteGuard
from selective_backprop._pipeline.options import LoaderOptions
from selective_backprop._pipeline.phases import PhasePlanner
from selective_backprop._pipeline.resume_point import MidEpochState
from selective_backprop._pipeline.rows import BufferState, Leftovers, Rows
from selective_backprop._pipeline.score_memory import ScoreMemory
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._sampling.gate import RunningGate
from selective_backprop._sampling.schedule import Phase
from selective_backprop.scorers import Needs, RunningScorer
from selective_backprop.selectors import Paced, RunningSelector

Waiting: TypeAlias = Callable[[], Scores] | None


class PipelineState(NamedTuple):
    """The state of a pipeline between two batches.

    Attributes:
        cursor: the consumer's position.
        waits: what the row buffer holds.
        held: a full batch kept from an epoch that another rank ended; it goes first.
        skipped: rows skipped so far because their losses were not finite.
        counted: the counts so far.
    """

    cursor: Cursor
    waits: BufferState
    held: Rows | None
    skipped: int
    counted: Stats


@dataclass(eq=False)
class Pipeline:
    """The stages between a data loader and a training loop.

    Attributes:
        candidate_loader: loads candidate batches.
        clock: knows how far training has come.
        selector: stage three; learns at an epoch's start how far training has come.
        scorer: stage two; None if nothing is scored.
        needs: the scorer's needs.
        gate: judges from scores whether selection pays yet; None if selection always acts.
        feed: shows the gate what training computes anyway; None if that is not possible.
        memory: what is remembered of each example; None if nothing is.
        finite: applies the policy for scores that are not finite.
        buffer: stages three and four.
        lockstep: lets ranks take their batches together; None for a single process.
        options: the user's options.
        cursor: the consumer's position.
        tally: the counts so far.
    """

    candidate_loader: CandidateLoader
    clock: PhasePlanner
    selector: RunningSelector
    scorer: RunningScorer | None
    needs: Needs
    gate: RunningGate | None
    feed: GateFeed | None
    memory: ScoreMemory | None
    finite: FiniteGuard
    buffer: SelectionBuffer
    lockstep: LockstepBatches | None
    options: LoaderOptions
    cursor: Cursor = field(default=Cursor(), init=False)
    tally: Tally = field(default_factory=Tally, init=False)

    def run(self, epoch: int, mid_epoch: MidEpochState | None = None) -> Iterator[Rows]:
        """Yield the training batches of one epoch.

        Args:
            epoch: its number.
            mid_epoch: how the epoch to be continued began; None for a new one.
        """
        begin = partial(self._open, epoch, mid_epoch)
        batches = self._fill()
        try:
            if self.lockstep is None:
                begin()
            for rows in batches if self.lockstep is None else self.lockstep.take(begin, batches):
                if self.scorer is not None and self.needs.learns:
                    with charged(self.options.stopwatch, "score"):
                        self.scorer.learn(rows.batch)
                if self.memory is not None and rows.indices is not None:
                    self.memory.writer.hand_out(rows.indices)
                yield rows
        finally:
            if self.memory is not None:
                self.memory.close()
        if self.lockstep is not None and self.lockstep.cut:
            self._let_go(self.lockstep)

    def state_dict(self) -> dict[str, Any]:
        """Return the consumer's position and the waiting rows, in plain containers.

        Raises:
            BatchError: if rows wait that cannot be saved.
        """
        held = None if self.lockstep is None else self.lockstep.held
        return {
            "cursor": self.cursor.state_dict(),
            "row_buffer": self.buffer.state.pack(),
            "held": BufferState(chosen=() if held is None else (held,)).pack(),
            "skipped": self.finite.skipped,
        }

    def read(
        self, cursor: Saved, row_buffer: Saved, held: Saved, skipped: Saved, counted: Stats
    ) -> PipelineState:
        """Return the state whose `state_dict()` was saved; change nothing.

        Args:
            cursor: the saved entry of that name; so are the next three.
            row_buffer: the rows that waited.
            held: the batch that ranks held back.
            skipped: how many rows were skipped.
            counted: the counts by then.

        Raises:
            ConfigurationError: if it is damaged.
        """
        examples = None if self.memory is None else self.memory.examples
        waits, first = (
            BufferState.unpack(
                rows,
                examples=examples,
                layout=self.options.layout if self.candidate_loader.counts else None,
                device=self.options.device,
            )
            for rows in (row_buffer, held)
        )
        if first.waiting or len(first.chosen) > (self.lockstep is not None):
            raise held.refuse("no more than the one batch that ranks hold back")
        back = first.chosen[0] if first.chosen else None
        return PipelineState(
            Cursor.read(cursor, counted, examples), waits, back, skipped.whole(), counted
        )

    def go_on(self, state: PipelineState) -> None:
        """Take over a state that was read."""
        self.cursor = state.cursor
        self.tally.update(vars(state.counted))
        self.buffer.go_on(state.waits)
        self.finite.go_on(state.skipped)
        if self.lockstep is not None:
            self.lockstep.go_on(state.held)

    def _let_go(self, lockstep: LockstepBatches) -> None:
        """Unless leftovers are carried, drop them after another rank has ended the epoch."""
        if self.options.leftovers is Leftovers.CARRY:
            return
        waits, gathered = self.cursor.buffer, self.cursor.gathered
        held = lockstep.let_go()
        self.buffer.drop(waits.candidates + waits.rows + gathered + held)
        self.cursor = self.cursor._replace(buffer=BufferState(dropped=waits.dropped), unscored=())

    def mid_epoch(self, start: EpochStart, counted: dict[str, Any]) -> MidEpochState:
        """Return how the running epoch began, as far as it matters after the cursor."""
        epoch_scores = None if self.memory is None else self.memory.epoch_scores
        known, settled = None, torch.empty(0, dtype=torch.int64)
        if epoch_scores is not None:
            known, settled = epoch_scores.known, epoch_scores.settled_until(self.cursor.settled)
        candidate_loader = self.candidate_loader
        return MidEpochState(
            start, counted, candidate_loader.streams, candidate_loader.stream, known, settled
        )

    def _open(self, epoch: int, mid_epoch: MidEpochState | None) -> None:
        """Begin an epoch, or continue it, in all stages."""
        epoch_scores = None
        if self.memory is not None:
            with charged(self.options.stopwatch, "select"):
                if mid_epoch is None:
                    epoch_scores = self.memory.open(epoch, handed=self.tally["batches"])
                else:
                    epoch_scores = self.memory.reopen(mid_epoch.known, mid_epoch.settled)
        if mid_epoch is None:
            self.cursor = self.cursor._replace(candidates=0, drawn=0)
        self.cursor = self.cursor._replace(epoch=epoch)
        self.clock.cadence.go_on(self.cursor.cadence)
        self.candidate_loader.open(self.cursor, epoch_scores, mid_epoch)
        # A paced selector learned its progress when the epoch began; a resumed one restored it.
        if mid_epoch is None and isinstance(self.selector, Paced):
            self.selector.begin(self.clock.progress.at(epoch, 0) or 0.0)
        self.buffer.open(epoch, anew=mid_epoch is None)

    def _fill(self) -> Generator[Rows]:
        """Send each batch that arrives through its remaining stages."""
        yield from self._timed(self.buffer.resume())
        # Such scorers file by index, so each row must be a single example.
        by_index = self.needs.indices or self.needs.remembers
        met = self.tally["loaded"] > 0
        for phase, rows, cursor, begun in self.candidate_loader.run(
            first=not met, will_score=self._is_scored
        ):
            if by_index and not met:
                warn_of_mixtures(rows.batch)
            met = True
            expired = rows.count if phase is Phase.SELECT and self.memory is not None else 0
            self._advance(cursor, loaded=rows.count, expired=expired)
            if phase is Phase.PRESELECTED:
                yield rows
                continue
            if phase is Phase.SELECT and self.gate is not None and not self.gate.is_open:
                phase = Phase.PLAIN
                if self.gate.probes():
                    self.gate.observe(self._score(rows, begun))
            if phase in (Phase.SELECT, Phase.RESCORE):
                rows = self._judge(rows, begun)
            elif (
                self.needs.passes
                and not self.tally["scored"]
                and not (self.feed and self.feed.taken)
            ):
                # Score the very first batch even in a warm-up, so that wrong losses raise at
                # once and not after a whole epoch. If the loop takes the loader's loss for a
                # gate, that loss raises by itself.
                self._score(rows)
            if phase is not Phase.RESCORE:
                for batch in self._timed(self.buffer.route(phase, rows)):
                    # It may start with rows that the last draw chose; it counts as plain.
                    plain = phase is Phase.PLAIN and self.feed is not None
                    yield replace(batch, plain=True) if plain else batch
        if (end := self.candidate_loader.end) is not None:
            self._advance(end)
        yield from self._timed(self.buffer.close(self.options.leftovers))
        self.finite.settle()

    def _advance(self, cursor: Cursor, **counts: int) -> None:
        """Move the cursor, and count the candidates passed."""
        self.tally.count(candidates=cursor.candidates - self.cursor.candidates, **counts)
        self.cursor = cursor

    def _judge(self, rows: Rows, begun: Waiting) -> Rows:
        """Return rows with their scores, if candidates are scored; remember the scores."""
        if self.scorer is None:
            return rows
        rows = self.finite.pass_on(rows.scored(self._score(rows, begun)))
        if rows.scores is None or not rows.count:
            return rows
        if self.gate is not None:
            self.gate.observe(rows.scores)
        if self.memory is not None and rows.indices is not None:
            self.memory.writer.scored.file(rows.indices, rows.scores, self.cursor.epoch)
        return rows

    def _is_scored(self, phase: Phase) -> bool:
        """Return whether an arriving batch will be scored, as far as that is known yet."""
        if phase is Phase.RESCORE:
            return True
        return phase is Phase.SELECT and (self.gate is None or self.gate.is_open)

    def _score(self, rows: Rows, begun: Waiting = None) -> Tensor:
        scorer = self.scorer
        assert scorer is not None  # only called where there is one
        checked = scorer.checked
        with charged(self.options.stopwatch, "score"):
            scores = scorer.score(rows.batch, rows.indices) if begun is None else begun()
            scores = check_losses(scores, rows.count).detach()
            if self.lockstep is not None or scores.dtype in (torch.float16, torch.bfloat16):
                scores = scores.float()  # ranks exchange float32; half precision would tie
            if self.options.device is not None:
                # Draws run on the rows' device; a model that spans devices may score elsewhere.
                scores = scores.to(self.options.device)
        self.tally.count(scored=rows.count, checked=scorer.checked - checked)
        return scores

    def _timed(self, stage: Iterator[Rows]) -> Iterator[Rows]:
        return stage if self.options.stopwatch is None else self._charge(stage)

    def _charge(self, stage: Iterator[Rows]) -> Iterator[Rows]:
        while True:
            with charged(self.options.stopwatch, "select"):
                rows = next(stage, None)
            if rows is None:
                return
            yield rows
