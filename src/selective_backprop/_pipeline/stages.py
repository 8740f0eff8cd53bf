"""One epoch's way through the funnel: drawn, loaded, scored, selected, handed out."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from selective_backprop._batches.losses import check_losses
from selective_backprop._batches.mixed_targets import warn_of_mixtures
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.stats import Stats
from selective_backprop._core.stopwatch import charged
from selective_backprop._core.types import Scores
from selective_backprop._pipeline.candidate_loader import CandidateLoader
from selective_backprop._pipeline.epoch_length import EpochStart
from selective_backprop._pipeline.gate_feed import GateFeed
from selective_backprop._pipeline.index_sampler import ResumeFrom, SamplerState
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


@dataclass
class Position:
    """How far the consumer has come, whatever workers have prefetched beyond it.

    Attributes:
        epoch: the running epoch's number; -1 before the first.
        candidates: examples of this epoch that have come up.
        drawn: candidate batches of this epoch that have arrived.
        draw: where the drawing of indices stood at the last of them.
        met: whether any batch has arrived, so that its layout is known to fit.
        handed: batches that were handed out.
        scored: whether any batch has been scored, so that scoring is known to work.
    """

    epoch: int = -1
    candidates: int = 0
    drawn: int = 0
    draw: SamplerState = field(default_factory=SamplerState)
    met: bool = False
    handed: int = 0
    scored: bool = False

    def pack(self) -> dict[str, Any]:
        """Return where the consumer stands in plain containers."""
        return {"candidates": self.candidates, "drawn": self.drawn, "draw": self.draw.pack()}

    @classmethod
    def unpack(cls, saved: Saved, tally: Stats, examples: int | None) -> "Position":
        """Return what `pack()` was called on.

        Args:
            saved: what it returned.
            tally: what was counted by then.
            examples: in the data set, of which all indices must be; None where any may be.

        Raises:
            ConfigurationError: if it is damaged.
        """
        candidates, drawn, draw = saved.fields("candidates", "drawn", "draw")
        return cls(
            tally.epoch,
            candidates.whole(0, tally.candidates),
            drawn.whole(),
            SamplerState.unpack(draw, examples),
            met=tally.loaded > 0,
            handed=tally.batches,
            scored=tally.scored > 0,
        )


@dataclass(frozen=True)
class Pipeline:
    """The stages between a data loader and a training loop.

    Attributes:
        candidate_loader: candidate batches as they come in.
        clock: tells how far training is.
        selector: stage three, told at an epoch's start how far training is.
        scorer: stage two; None where nothing is scored.
        needs: the scorer's.
        gate: whether selection pays yet, judged from scores; None where it always acts.
        feed: shows the gate what training computes anyway; None where that is not possible.
        memory: what is remembered of each example; None where nothing is.
        finite: what happens to scores that are not finite.
        buffer: stages three and four.
        lockstep: lets ranks take their batches together; None for one process alone.
        options: the user's.
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

    def run(
        self,
        epoch: int,
        position: Position,
        count: Callable[..., None],
        mid_epoch: MidEpochState | None = None,
    ) -> Iterator[Rows]:
        """Yield the training batches of one epoch.

        Args:
            epoch: its number.
            position: where the consumer stands; moved along.
            count: called with increments of `Stats` fields by name.
            mid_epoch: what the rest of an epoch needs; None for a whole one.
        """
        begin = partial(self._open, epoch, position)
        if mid_epoch is not None:
            begin = partial(self._reopen, epoch, position, mid_epoch)
        batches = self._fill(position, count)
        try:
            for rows in self._take(begin, batches):
                if self.scorer is not None and self.needs.learns:
                    with charged(self.options.stopwatch, "score"):
                        self.scorer.learn(rows.batch)
                if self.memory is not None and rows.indices is not None:
                    self.memory.writer.hand_out(rows.indices)
                position.handed += 1
                yield rows
        finally:
            if self.memory is not None:
                self.memory.close()
        if self.lockstep is not None and self.lockstep.cut:
            self._let_go(position)

    def _take(self, begin: Callable[[], None], batches: Generator[Rows]) -> Iterator[Rows]:
        if self.lockstep is not None:
            return self.lockstep.take(begin, batches)
        begin()
        return batches

    def _let_go(self, position: Position) -> None:
        """Do with what is left as is asked for, after another rank has ended the epoch."""
        assert self.lockstep is not None
        if self.options.leftovers is Leftovers.CARRY:
            return
        held, self.lockstep.held = self.lockstep.held, None
        row_buffer, index_buffer = self.buffer.state, position.draw.buffer
        lost = (
            sum(f.candidates + f.rows for f in (row_buffer, index_buffer)) + position.draw.gathered
        )
        lost += 0 if held is None else held.count
        self.buffer.state = BufferState(dropped=row_buffer.dropped + lost)
        position.draw = position.draw._replace(
            buffer=BufferState(dropped=index_buffer.dropped), unscored=()
        )

    def mid_epoch(
        self, start: EpochStart, counted: dict[str, Any], position: Position
    ) -> MidEpochState:
        """Return how the epoch began that runs, of which `position` is reached."""
        epoch_scores = None if self.memory is None else self.memory.epoch_scores
        known, settled = None, torch.empty(0, dtype=torch.int64)
        if epoch_scores is not None:
            known, settled = epoch_scores.known, epoch_scores.settled_until(position.draw.settled)
        candidate_loader = self.candidate_loader
        return MidEpochState(
            start, counted, candidate_loader.streams, candidate_loader.stream, known, settled
        )

    def _open(self, epoch: int, position: Position) -> None:
        """Begin an epoch in all stages."""
        epoch_scores = None
        if self.memory is not None:
            with charged(self.options.stopwatch, "select"):
                epoch_scores = self.memory.open(epoch, handed=position.handed)
        position.epoch, position.candidates, position.drawn = epoch, 0, 0
        self.candidate_loader.open(epoch, position.draw, epoch_scores)
        if isinstance(self.selector, Paced):
            self.selector.begin(self.clock.progress.at(epoch, 0) or 0.0)
        self.buffer.open(epoch)

    def _reopen(self, epoch: int, position: Position, mid_epoch: MidEpochState) -> None:
        """Go on in an epoch; a selector that is paced has been told where it began."""
        epoch_scores = None
        if self.memory is not None:
            with charged(self.options.stopwatch, "select"):
                epoch_scores = self.memory.reopen(mid_epoch.known, mid_epoch.settled)
        digest, streams = position.draw.digest, mid_epoch.streams
        passed = ResumeFrom(position.candidates, position.drawn, digest, streams, mid_epoch.stream)
        self.candidate_loader.open(epoch, position.draw, epoch_scores, passed)
        self.buffer.open(epoch, anew=False)

    def _fill(self, position: Position, count: Callable[..., None]) -> Generator[Rows]:
        """Take what arrives through the stages that are left to it."""
        yield from self._timed(self.buffer.resume())
        for phase, rows, begun in self._take_in(position, count):
            if phase is Phase.PRESELECTED:
                yield rows
                continue
            if phase is Phase.SELECT and self.gate is not None and not self.gate.is_open:
                phase = Phase.PLAIN
                if self.gate.probes():
                    self.gate.observe(self._score(rows, position, count, begun))
            if phase in (Phase.SELECT, Phase.RESCORE):
                rows = self._judge(rows, position, count, begun)
            elif self.needs.passes and not position.scored and not (self.feed and self.feed.taken):
                # The very first batch is scored even in a warm-up: what is wrong with the losses
                # is said at once, and not when a whole epoch has been trained. The loader's loss,
                # where a loop takes it for a gate, says so itself.
                self._score(rows, position, count)
            if phase is not Phase.RESCORE:
                for batch in self._timed(self.buffer.route(phase, rows)):
                    # Rows that a last draw left waiting may lead it; it counts as plain.
                    yield replace(batch, plain=True) if phase is Phase.PLAIN else batch
        yield from self._timed(self.buffer.close(self.options.leftovers))
        self.finite.settle()

    def _judge(
        self, rows: Rows, position: Position, count: Callable[..., None], begun: Waiting
    ) -> Rows:
        """Return rows with their scores, if candidates are scored, and remember them."""
        if self.scorer is None:
            return rows
        rows = self.finite.pass_on(replace(rows, scores=self._score(rows, position, count, begun)))
        if rows.scores is None or not rows.count:
            return rows
        if self.gate is not None:
            self.gate.observe(rows.scores)
        if self.memory is not None and rows.indices is not None:
            self.memory.writer.scored.file(rows.indices, rows.scores, position.epoch)
        return rows

    def _take_in(
        self, position: Position, count: Callable[..., None]
    ) -> Iterator[tuple[Phase, Rows, Waiting]]:
        """Yield loaded batches with their phase, and move the consumer's position along."""
        # What is known of a row is known by its index, so it must be a single example's.
        by_index = self.needs.indices or self.needs.remembers
        for candidate_batch in self.candidate_loader.run(
            first=not position.met, will_score=self._is_scored
        ):
            if by_index and not position.met:
                warn_of_mixtures(candidate_batch.rows.batch)
            position.met = True
            phase, rows, candidates, position.drawn, position.draw, scores = candidate_batch
            old = rows.count if phase is Phase.SELECT and self.memory is not None else 0
            count(candidates=candidates - position.candidates, loaded=rows.count, expired=old)
            position.candidates = candidates
            yield phase, rows, scores
        if (end := self.candidate_loader.end) is not None:
            candidates, position.drawn, position.draw = end
            count(candidates=candidates - position.candidates)
            position.candidates = candidates

    def _is_scored(self, phase: Phase) -> bool:
        """Return whether a batch that arrives is going to be scored, as far as can be told."""
        if phase is Phase.RESCORE:
            return True
        return phase is Phase.SELECT and (self.gate is None or self.gate.is_open)

    def _score(
        self,
        rows: Rows,
        position: Position,
        count: Callable[..., None],
        begun: Waiting = None,
    ) -> Tensor:
        assert self.scorer is not None  # whoever scores has one
        checked = self._checked
        with charged(self.options.stopwatch, "score"):
            scores = self.scorer.score(rows.batch, rows.indices) if begun is None else begun()
            scores = check_losses(scores, rows.count).detach()
            if self.lockstep is not None or scores.dtype in (torch.float16, torch.bfloat16):
                scores = scores.float()  # as ranks send them; and halves would tie
            if self.options.device is not None:
                # The rows' device draws; a model that spans devices may score on another.
                scores = scores.to(self.options.device)
        position.scored = True
        count(scored=rows.count, checked=self._checked - checked)
        return scores

    @property
    def _checked(self) -> int:
        return 0 if self.scorer is None else self.scorer.checked

    def _timed(self, stage: Iterator[Rows]) -> Iterator[Rows]:
        while True:
            with charged(self.options.stopwatch, "select"):
                rows = next(stage, None)
            if rows is None:
                return
            yield rows
