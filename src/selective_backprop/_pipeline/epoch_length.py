"""Find out how many batches an epoch will yield, if that can be known in advance."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from selective_backprop._pipeline.index_sampler import IndexSampler
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.options import Setup
from selective_backprop._pipeline.phases import PhasePlanner
from selective_backprop._pipeline.resume_point import EpochStart
from selective_backprop._pipeline.rows import BufferState, Rows, Shape
from selective_backprop._pipeline.score_memory import ScoreMemory
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._pipeline.source import Source
from selective_backprop._sampling.schedule import Phase
from selective_backprop.selectors import RunningSelector

ONE_BY_ONE = "each candidate is kept or not by a random draw, once its score is known"
ORDER = (
    "which examples come up depends on the sampler and on drop_last. This is known in advance only "
    "if each example of the data set or subset comes up once, as with shuffle=True and no drop_last"
)


@dataclass(frozen=True)
class LengthPlanner:
    """Count the training batches that an epoch will yield."""

    setup: Setup
    clock: PhasePlanner
    selector: RunningSelector
    memory: ScoreMemory | None  # of each example; None if nothing is remembered
    draw: IndexSampler | None  # None for a stream

    @property
    def source(self) -> Source:
        """The user's data loader."""
        return self.setup.source

    @property
    def ahead(self) -> IndexSampler | None:
        """What draws from all examples, if rows are drawn one by one."""
        return self.draw if self.draw is not None and self.draw.ahead else None

    @property
    def shape(self) -> Shape:
        """The sizes of training batches and windows."""
        return self.setup.shape

    def batches(self, start: EpochStart) -> int:
        """Return how many batches the epoch from `start` yields; raise TypeError if unknown."""
        self._refuse_later_surprise()
        return self._count(start)[0]

    def lengths(self, start: EpochStart, epochs: int) -> list[int]:
        """Return the number of batches of each of `epochs` epochs; TypeError if unknown."""
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
        """Raise TypeError if only the epochs that train on everything have a known length."""
        if self.shape.window is not None or self.shape.keeps_everything:
            return
        if self.memory is None or self.memory.needs.passes:
            raise TypeError(ONE_BY_ONE)
        if not self.clock.turns_between_epochs:
            raise TypeError("selection begins or ends within an epoch")
        if self.source.count_kept(np.empty(self.memory.examples, dtype=bool)) is None:
            raise TypeError(ORDER)

    def _count(self, start: EpochStart) -> tuple[int, EpochStart | None]:
        """Return the number of batches of an epoch, and the start of the next one, if known."""
        held, later = bool(start.held), start._replace(epoch=start.epoch + 1, held=0)
        if self.shape.keeps_everything and self.shape.unchanged:
            return self.source.length() + held, later
        sizes = self.source.sizes()
        if sizes is None:
            raise TypeError("the loader does not know the sizes of its batches in advance")
        candidate_batches = list(self._phases(sizes, start.epoch))
        selecting = {phase is Phase.SELECT for phase, _ in candidate_batches}
        early = self.setup.strategy.scorer is None and self.source.indexed
        if self.memory is not None:
            if not self.shape.unchanged and len(selecting) > 1:
                raise TypeError("unselected rows and scored rows fill separate batches")
            early = self.memory.knows_all(start.epoch)
            if early is None:
                raise TypeError("some scores are known and others are not, so batches are mixed")
            if self.ahead is not None and True in selecting:
                if not early:
                    raise TypeError("scores are not known before the epoch begins")
                return held + self._count_ahead(start, self.ahead, self.memory), None
        unscored = [(Phase.SELECT, start.unscored)] if start.unscored else []
        if early:
            others, indices, rows = start.row_buffer, candidate_batches, unscored
        else:
            others, indices, rows = start.index_buffer, [], unscored + candidate_batches
        if (others.candidates or others.rows or start.unscored) and (
            self.memory is None or False in selecting
        ):
            raise TypeError("selected and other rows wait, and both go into the same batches")
        # An epoch that was broken off leaves rows in both buffers, and both complete batches.
        drawn, index_buffer = self._run(start.index_buffer, indices)
        loaded, row_buffer = self._run(start.row_buffer, rows)
        if self.memory is not None:
            return held + drawn + loaded, None
        return held + drawn + loaded, later._replace(
            index_buffer=index_buffer, row_buffer=row_buffer
        )

    def _count_ahead(self, start: EpochStart, ahead: IndexSampler, memory: ScoreMemory) -> int:
        """Return the number of batches of an epoch that draws from all examples at its start."""
        if start.unscored or start.row_buffer.candidates or start.row_buffer.rows:
            raise TypeError("rows of an earlier epoch wait to be scored or to fill a batch")
        known = memory.recall(start.epoch)
        assert known is not None  # all scores are known
        selector, paced = self.selector, self.selector.state_dict()
        if not memory.runs:
            self.clock.pace(selector, start.epoch)
        kept = self.source.count_kept(ahead.draw_all(start.epoch, known).mask)
        selector.load_state_dict(paced)  # a state may still be saved for an earlier epoch
        if kept is None:
            raise TypeError(ORDER)
        waits = start.index_buffer
        return self._run(waits._replace(chosen=(*waits.chosen, Rows(None, kept))), [])[0]

    def _run(
        self, waits: BufferState, candidate_batches: Iterable[tuple[Phase, int]]
    ) -> tuple[int, BufferState]:
        """Return how many batches a buffer yields in an epoch of exact draws, and what then waits.

        A buffer is run on mere numbers of rows, so the result is exact.
        """
        buffer = SelectionBuffer(self.selector, self.shape)
        buffer.state = waits
        found = sum(1 for _ in buffer.release())
        for phase, count in candidate_batches:
            found += sum(1 for _ in buffer.route(phase, Rows(None, count)))
        found += sum(1 for _ in buffer.close(self.setup.options.leftovers))
        return found, buffer.state

    def _phases(self, sizes: Iterator[int], epoch: int) -> Iterator[tuple[Phase, int]]:
        """Yield the phase and size of the epoch's candidate batches, before they are drawn."""
        clock = self.clock
        if clock.progress.measured is not None and clock.schedule.uses_fractions:
            raise TypeError("progress= decides when to select, which is not known in advance")
        for drawn, size in enumerate(sizes):
            phase = clock.phase(epoch, drawn)
            if phase is Phase.SELECT and clock.gate is not None:
                raise TypeError("a gate decides when to select, which is not known in advance")
            if phase is Phase.SELECT and not self.shape.keeps_everything:
                if self.shape.window is None and self.ahead is None:
                    raise TypeError(ONE_BY_ONE)
                if (
                    self.setup.strategy.scorer is not None
                    and self.setup.options.nonfinite is NonFinite.SKIP
                ):
                    raise TypeError("how many rows nonfinite='skip' leaves out is not known")
            yield phase, size
