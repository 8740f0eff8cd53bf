"""The pipeline of one epoch: draw, load, score, select, hand out."""

from collections.abc import Generator, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._batches.losses import check_losses, warn_of_mixtures
from selective_backprop._batches.serialization import on_device
from selective_backprop._core.stats import Stats
from selective_backprop._core.stopwatch import charged
from selective_backprop._core.types import NO_TARGET
from selective_backprop._distributed.group import Exchange
from selective_backprop._memory.history import SharedHistory
from selective_backprop._memory.ledger import to_host
from selective_backprop._pipeline.candidate_loader import CandidateLoader
from selective_backprop._pipeline.gate_feed import GateFeed
from selective_backprop._pipeline.index_sampler import CandidateBatch, IndexSampler
from selective_backprop._pipeline.lockstep import LockstepBatches
from selective_backprop._pipeline.nonfinite import FiniteGuard, TargetWatch
from selective_backprop._pipeline.options import SCORED, PhasePlanner, Setup
from selective_backprop._pipeline.rows import (
    NO_INDICES,
    BufferState,
    Cursor,
    EpochStart,
    Leftovers,
    Rows,
)
from selective_backprop._pipeline.score_memory import ScoreMemory
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._sampling.schedule import Phase
from selective_backprop.scorers._abstract import overrides, split_scored, start_scorer


class PipelineState(NamedTuple):
    cursor: Cursor
    waits: BufferState  # the contents of the row buffer
    plain: bool  # whether the full batches in it are made without a draw
    skipped: int  # rows skipped so far because their losses were not finite
    held: Rows | None  # a batch kept when another rank ended an epoch; it goes first
    drawn: int  # candidate batches that every rank has drawn; 0 for a single process
    seed: int  # of all draws
    tally: dict[str, Any]  # the counts so far, by the names of `Stats`


class Pipeline:
    """The stages between a data loader and a training loop.

    1. draw: `CandidateLoader` loads what `IndexSampler` draws, which may select before loading.
    2. score: the scorer scores what arrives, unless `ScoreMemory` knows the scores already.
    3. select: a `SelectionBuffer` draws from each window of scored candidates.
    4. fill: chosen rows wait in the same buffer for a full training batch.
    """

    def __init__(self, setup: Setup) -> None:
        strategy, terms = setup.strategy, setup.terms
        self.together = setup.together  # first: what it refuses must not start
        gate, scorer, shape = strategy.schedule.gate, strategy.scorer, setup.shape
        self.setup, self.needs, self.uses_features = setup, setup.needs, terms.features
        self.paired = self.needs.features  # whether the scorer returns features, used or not
        self.selector = strategy.selector.start(setup.context)
        self.scorer = None if scorer is None else start_scorer(scorer, setup.context)
        gate = None if gate is None else gate.start(setup.context)
        self.clock = PhasePlanner(strategy.schedule, setup.progress, gate)
        buffer = partial(SelectionBuffer, self.selector, shape)
        seed = setup.seed, setup.ranks.rank

        # 1. draw
        remembers = self.scorer is not None and setup.remembers
        self.memory = ScoreMemory(setup, self.scorer) if remembers else None
        self.keys = buffer(ranks=terms.history > 0, seed=(*seed, 0))
        own = setup, self.clock, self.keys, self.memory
        draw = IndexSampler(*own) if setup.source.indexed else None
        # A CPU is not slowed by marks, so there is nothing to watch for.
        self.watch = TargetWatch(scorer, setup.context.losses if setup.on_gpu else None)
        self.candidate_loader = CandidateLoader(setup, draw, self.clock, self.scorer, self.watch)
        # 2. score
        self.feed = GateFeed.of(gate, scorer)
        # Whether some candidates are scored twice.
        self.checks = self.scorer is not None and overrides(self.scorer, "checked")
        # A gate or a memory reads the scores of each batch at once, so checks cannot come later.
        later = setup.on_gpu and shape.window is not None and gate is None and self.memory is None
        self.finite = FiniteGuard(setup.nonfinite, setup.layout, later=later)
        # 3. select, and 4. fill
        size = max(terms.history, setup.candidates) * setup.ranks.size
        self.history = terms.history_type(size) if terms.history else None
        self.lockstep = None
        if setup.ranks.size > 1:
            most, shared = 0, None
            if self.history is not None and self.needs.passes:
                most = setup.candidates
                shared = SharedHistory(self.history, most, setup.device)
            own = Exchange(setup.ranks, most), shared, self.drawn
            self.lockstep = LockstepBatches(*own, overlaps=setup.overlap)
        self.buffer = buffer(
            history=self.history,
            filing=None if self.lockstep is None else self.lockstep.history,
            layout=setup.layout,
            sift=self.finite.sift if self.finite.later else None,
            indexed=setup.indexed,
            watch=self.watch,
            seed=(*seed, 1),
        )
        self.scoring = charged(setup.stopwatch, "score")
        self.selecting = charged(setup.stopwatch, "select")
        self.tally = vars(Stats()).copy()  # the counts so far
        self.cursor = Cursor()  # the consumer's position
        self.plain = False  # whether a gate observes the batches that the buffer hands out
        self._finishing = False  # whether another rank has ended the epoch: no more is handed out

    def run(self, epoch: int, mid_epoch: EpochStart | None = None) -> Iterator[Rows]:
        begin, batches = partial(self._open, epoch, mid_epoch), self._fill()
        lockstep, memory = self.lockstep, self.memory
        finish = partial(self._finish, batches) if self.needs.rescores else None
        teaches = self.scorer is not None and overrides(self.scorer, "learn")
        try:
            if lockstep is None:
                begin()
            for rows in batches if lockstep is None else lockstep.take(begin, batches, finish):
                if teaches:
                    with self.scoring():
                        self.scorer.learn(rows.batch)
                if memory is not None and rows.indices is not None:
                    memory.handed += 1
                    memory.writer.hand_out(rows.indices)
                yield rows
        finally:
            self.candidate_loader.close()
            if memory is not None:
                memory.close()
        leftovers = self.setup.leftovers
        if lockstep is not None and lockstep.cut and leftovers is not Leftovers.CARRY:
            held, lockstep.held = lockstep.held, None
            more = len(self.cursor.unscored) + (0 if held is None else held.count)
            self.buffer.state = self.buffer.state.after_epoch(leftovers, more)
            waits = self.cursor.buffer.after_epoch(leftovers)
            self.cursor = self.cursor._replace(buffer=waits, unscored=NO_INDICES)

    def drawn(self) -> int:
        batches = self.clock.progress.source.batches or 0
        return max(0, self.cursor.epoch) * batches + self.cursor.drawn

    @property
    def state(self) -> PipelineState:
        lockstep = self.lockstep
        self.buffer.sift()  # an error may have prevented the draw
        cursor = self.cursor._replace(exempt=0)  # `mid_epoch` joins what this counts
        own = cursor, self.buffer.state, self.plain, self.finite.skipped
        held, drawn = (None, 0) if lockstep is None else (lockstep.held, lockstep.drawn)
        return PipelineState(*own, held, drawn, self.keys.seed[0], dict(self.tally))

    def seed_with(self, seed: int) -> None:
        for buffer in (self.keys, self.buffer):
            buffer.seed = (seed, *buffer.seed[1:])

    def go_on(self, state: PipelineState) -> None:
        self.cursor, waits, self.plain, self.finite.skipped, held, drawn, seed, tally = state
        self.tally.update(tally)
        self.seed_with(seed)
        self.buffer.state = on_device(waits, self.setup.device)
        scores = [rows.scores for rows in waits.waiting if rows.scores is not None]
        if any(bool((each == NO_TARGET).any()) for each in scores):
            self.watch.mark()
        if self.lockstep is not None:
            self.lockstep.held, self.lockstep.drawn = on_device(held, self.setup.device), drawn

    def mid_epoch(self, start: EpochStart) -> EpochStart:
        begun = start._replace(stream=self.candidate_loader.stream)
        if self.memory is not None and (epoch_scores := self.memory.epoch_scores) is not None:
            exempt = torch.cat([NO_INDICES, *epoch_scores.exempt[: self.cursor.exempt]])
            begun = begun._replace(known=epoch_scores.known, exempt=exempt)
        if (draw := self.candidate_loader.draw) is not None:
            begun = begun._replace(streams=draw.streams, reach=draw.reach)
        return begun

    def _open(self, epoch: int, mid_epoch: EpochStart | None) -> None:
        self._finishing = False
        epoch_scores = None
        if self.memory is not None:
            with self.selecting():
                if mid_epoch is None:
                    epoch_scores = self.memory.open(epoch, handed=self.tally["batches"])
                else:
                    epoch_scores = self.memory.reopen(mid_epoch.known, mid_epoch.exempt, epoch)
        if mid_epoch is None:
            # A state saved at a batch left from the last epoch must not continue its counts.
            buffer, unscored = self.cursor.buffer._replace(windows=0), self.cursor.unscored
            self.cursor = Cursor(epoch, buffer=buffer, unscored=unscored)
            self.plain = False
            self.buffer.state = self.buffer.state._replace(windows=0)
            self.clock.pace(self.selector, epoch)  # only here: states restore a selector's pace
        self.candidate_loader.open(self.cursor, epoch_scores, mid_epoch)
        self.buffer.open(epoch)

    def _fill(self) -> Generator[Rows]:
        yield from self._hand_out(self.buffer.release())
        tally = self.tally
        # Scores are filed by index, so each row must be a single example.
        by_index = self.needs.indices or self.needs.remembers
        met = tally["loaded"] > 0
        for batch in self.candidate_loader.run(first=not met):
            planned, rows, cursor, *_ = batch
            if by_index and not met:
                warn_of_mixtures(rows.batch)
            met = True
            if self._finishing:
                if planned is Phase.RESCORE:
                    tally["loaded"] += rows.count
                    self._judge(batch)
                continue
            loaded, phase, scored = rows.count, planned, (tally["scored"], tally["checked"])
            if planned is not Phase.PRESELECTED:
                try:
                    phase, rows = self._examine(batch)
                except BaseException:
                    tally["scored"], tally["checked"] = scored
                    raise
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
            return self._note_ties()
        end = self.candidate_loader.end
        tally["candidates"] += end.candidates - self.cursor.candidates
        self.cursor = end
        yield from self._hand_out(self.buffer.close(self.setup.leftovers))
        self._note_ties()
        self.finite.late.wait()

    def _note_ties(self) -> None:
        # On a GPU, the host waits here. What the next epoch reads of the ledger comes with it.
        count = 0 if self.history is None else len(self.history)
        untied = [self.history.untied()] if self.history is not None and count else []
        found = to_host(*untied) if self.memory is None else self.memory.ledger.fetch(*untied)
        if found:
            self.tally["ties"] = 1.0 - int(found[0]) / count

    def _examine(self, batch: CandidateBatch) -> tuple[Phase, Rows]:
        gate, planned, rows = self.clock.gate, batch.phase, batch.rows
        phase = planned if gate is None else self.clock.on_arrival(planned)
        if gate is not None and phase is not planned and gate.probes():
            gate.observe(self._score(batch)[0])
        if phase in SCORED:
            rows = self._judge(batch)
        elif self.needs.passes and not self.tally["scored"]:
            # The very first batch is always scored, so that wrong losses raise at once.
            self._score(batch)
        return phase, rows

    def _finish(self, batches: Generator[Rows]) -> None:
        self._finishing = True
        if (draw := self.candidate_loader.draw) is not None:
            draw.stops = True
        for _ in batches:
            pass

    def _judge(self, batch: CandidateBatch) -> Rows:
        if self.scorer is None:
            return batch.rows
        scores, features = self._score(batch)
        rows = self.finite.pass_on(batch.rows._replace(scores=scores, features=features))
        if rows.scores is None or not rows.count:
            return rows
        if self.clock.gate is not None:
            self.clock.gate.observe(rows.scores)
        if self.memory is not None and rows.indices is not None:
            scores = rows.scores
            if self.watch.lacking:
                scores = scores.masked_fill(scores == NO_TARGET, torch.nan)
            self.memory.writer.score(rows.indices, scores, self.cursor.epoch)
        return rows

    def _score(self, batch: CandidateBatch) -> tuple[Tensor, Tensor | None]:
        scorer, device, rows, begun = self.scorer, self.setup.device, batch.rows, batch.scores
        assert scorer is not None  # only called where there is one
        checked = scorer.checked if self.checks else 0
        with self.scoring():
            found = scorer.score(rows.batch, rows.indices) if begun is None else begun()
            scores, features = split_scored(found, rows.count) if self.paired else (found, None)
            column = type(scores) is Tensor and scores.shape == (rows.count,)
            if not column or not scores.is_floating_point():
                scores = check_losses(scores, rows.count)  # raises, or turns counts into floats
            scores = scores.detach()
            if self.lockstep is not None or scores.dtype in (torch.float16, torch.bfloat16):
                scores = scores.float()  # ranks exchange float32; half precision makes many ties
            if device is not None:
                # Draws run on the rows' device; a model on several devices may score elsewhere.
                scores = scores.to(device)
                features = None if features is None else features.to(device)
        self.tally["scored"] += rows.count
        if self.checks:
            self.tally["checked"] += scorer.checked - checked
        return scores, features if self.uses_features else None

    def _hand_out(self, batches: Iterator[Rows]) -> Iterator[Rows]:
        while not self._finishing:
            with self.selecting():
                rows = next(batches, None)
            if rows is None:
                return
            yield rows._replace(plain=True) if self.plain else rows
