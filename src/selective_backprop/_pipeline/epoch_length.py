"""Find out how many batches an epoch will yield, if that can be known in advance."""

from collections.abc import Iterable, Iterator

import numpy as np

from selective_backprop._pipeline.index_sampler import IndexSampler
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.options import Setup
from selective_backprop._pipeline.rows import BufferState, EpochStart, Rows
from selective_backprop._pipeline.score_memory import ScoreMemory
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._pipeline.stages import Pipeline
from selective_backprop._sampling.schedule import Phase

ONE_BY_ONE = "each candidate is kept or not by a random draw, once its score is known"
ORDER = (
    "which examples come up depends on the sampler and on drop_last. This is known in advance only "
    "if each example of the data set or subset comes up once, as with shuffle=True and no drop_last"
)


class LengthPlanner:
    def __init__(self, setup: Setup, pipeline: Pipeline) -> None:
        self.source, self.shape, self._setup = setup.source, setup.shape, setup
        self._clock, self._memory = pipeline.clock, pipeline.memory
        self._selector, draw = pipeline.selector, pipeline.candidate_loader.draw
        # What draws from all examples, if rows are drawn one by one.
        self._ahead = draw if draw is not None and draw.ahead else None

    def batches(self, start: EpochStart) -> int:
        self._refuse_later_surprise()
        return self._count(start)[0]

    def lengths(self, start: EpochStart, epochs: int) -> list[int]:
        self._refuse_later_surprise()
        found = []
        for _ in range(epochs):
            batches, later = self._count(start)
            if later is None:
                raise TypeError("later epochs depend on remembered scores that are not known yet")
            found.append(batches)
            start = later
        return found

    def _refuse_later_surprise(self) -> None:
        if self.shape.window is not None or self.shape.keeps_everything:
            return
        if self._memory is None or self._memory.needs.passes:
            raise TypeError(ONE_BY_ONE)
        if not self._clock.turns_between_epochs:
            raise TypeError("selection begins or ends within an epoch")
        if self.source.count_kept(np.empty(self._memory.examples, dtype=bool)) is None:
            raise TypeError(ORDER)

    def _count(self, start: EpochStart) -> tuple[int, EpochStart | None]:
        held, later = bool(start.held), start._replace(epoch=start.epoch + 1, held=0)
        if self.shape.keeps_everything and self.shape.unchanged:
            return self.source.length() + held, later
        sizes = self.source.sizes()
        if sizes is None:
            raise TypeError("the loader does not know the sizes of its batches in advance")
        candidate_batches = list(self._phases(sizes, start.epoch))
        selecting = {phase is Phase.SELECT for phase, _ in candidate_batches}
        early = self._setup.strategy.scorer is None and self.source.indexed
        if self._memory is not None:
            if not self.shape.unchanged and len(selecting) > 1:
                raise TypeError("unselected rows and scored rows fill separate batches")
            known = self._memory.recall(start.epoch)
            missing = None if known is None else int(known.isnan().sum())
            early = missing == 0
            if missing and known is not None and missing < len(known):
                raise TypeError("some scores are known and others are not, so batches are mixed")
            if self._ahead is not None and True in selecting:
                if not early:
                    raise TypeError("scores are not known before the epoch begins")
                return held + self._count_ahead(start, self._ahead, self._memory), None
        unscored = [(Phase.SELECT, start.unscored)] if start.unscored else []
        others, indices, rows = start.index_buffer, [], unscored + candidate_batches
        if early:
            others, indices, rows = start.row_buffer, candidate_batches, unscored
        waits = others.waiting or others.chosen or start.unscored
        if waits and (self._memory is None or False in selecting):
            raise TypeError("selected and other rows wait, and both go into the same batches")
        # An epoch that was broken off leaves rows in both buffers, and both complete batches.
        drawn, index_buffer = self._run(start.index_buffer, indices)
        loaded, row_buffer = self._run(start.row_buffer, rows)
        later = later._replace(index_buffer=index_buffer, row_buffer=row_buffer)
        return held + drawn + loaded, later if self._memory is None else None

    def _count_ahead(self, start: EpochStart, ahead: IndexSampler, memory: ScoreMemory) -> int:
        if start.unscored or start.row_buffer.waiting or start.row_buffer.chosen:
            raise TypeError("rows of an earlier epoch wait to be scored or to fill a batch")
        known = memory.recall(start.epoch)
        assert known is not None  # all scores are known
        selector, paced = self._selector, self._selector.state_dict()
        if not memory.runs:
            self._clock.pace(selector, start.epoch)
        mask, _ = ahead.draw_all(start.epoch, known)
        kept = self.source.count_kept(mask)
        selector.load_state_dict(paced)  # a state may still be saved for an earlier epoch
        if kept is None:
            raise TypeError(ORDER)
        waits, chosen = start.index_buffer, [Rows(None, kept)] if kept else []
        return self._run(waits._replace(chosen=(*waits.chosen, *chosen)), [])[0]

    def _run(
        self, waits: BufferState, candidate_batches: Iterable[tuple[Phase, int]]
    ) -> tuple[int, BufferState]:
        buffer = SelectionBuffer(self._selector, self.shape)
        buffer.state = waits
        found = sum(1 for _ in buffer.release())
        for phase, count in candidate_batches:
            found += sum(1 for _ in buffer.route(phase, Rows(None, count)))
        found += sum(1 for _ in buffer.close(self._setup.leftovers))
        return found, buffer.state

    def _phases(self, sizes: Iterator[int], epoch: int) -> Iterator[tuple[Phase, int]]:
        clock = self._clock
        if clock.progress.measured is not None and clock.schedule.uses_fractions:
            raise TypeError("progress= decides when to select, which is not known in advance")
        for drawn, size in enumerate(sizes):
            phase = clock.phase(epoch, drawn)
            if phase is Phase.SELECT and clock.gate is not None:
                raise TypeError("a gate decides when to select, which is not known in advance")
            if phase is Phase.SELECT and not self.shape.keeps_everything:
                skips = self._setup.nonfinite is NonFinite.SKIP
                if skips and self._setup.strategy.scorer is not None:
                    raise TypeError("how many rows nonfinite='skip' leaves out is not known")
            yield phase, size
