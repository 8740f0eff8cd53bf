"""How many batches an epoch will yield, where that can be known in advance."""

from collections.abc import Iterator
from dataclasses import dataclass

from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.options import LoaderOptions
from selective_backprop._pipeline.phases import PhasePlanner
from selective_backprop._pipeline.resume_point import EpochStart
from selective_backprop._pipeline.rows import Shape
from selective_backprop._pipeline.score_memory import ScoreMemory
from selective_backprop._pipeline.selection_buffer import count_batches
from selective_backprop._pipeline.source import Source
from selective_backprop._sampling.schedule import Phase


@dataclass(frozen=True)
class LengthPlanner:
    """Count the training batches that an epoch will yield."""

    source: Source
    clock: PhasePlanner
    shape: Shape
    options: LoaderOptions
    scores: bool  # whether anything is scored
    selects_before_loading: bool  # whether all selection happens before loading
    memory: ScoreMemory | None  # of each example; None if nothing is remembered

    def batches(self, start: EpochStart) -> int:
        """Return the batches of the epoch that starts at `start`; raise TypeError if unknown."""
        return self._count(start)[0]

    def lengths(self, start: EpochStart, epochs: int) -> list[int]:
        """Return the batches of each of `epochs` epochs from `start` on; TypeError if unknown."""
        found = []
        for _ in range(epochs):
            batches, later = self._count(start)
            if later is None:
                raise TypeError("what is remembered decides how many batches later epochs yield")
            found.append(batches)
            start = later
        return found

    def _count(self, start: EpochStart) -> tuple[int, EpochStart | None]:
        """Return the number of batches of an epoch, and the start of the next one, if known."""
        held, later = bool(start.held), start._replace(epoch=start.epoch + 1, held=0)
        if self.shape.keeps_everything and self.shape.unchanged:
            return self.source.length() + held, later
        sizes = self.source.sizes()
        if sizes is None:
            raise TypeError("the loader does not know the sizes of its batches in advance")
        clock = self.clock.standing_at(start.cadence)
        candidate_batches = list(self._phases(sizes, start.epoch, clock))
        selecting = {phase is Phase.SELECT for phase, _ in candidate_batches}
        early = self.selects_before_loading
        if self.memory is not None:
            if not self.shape.unchanged and len(selecting) > 1:
                raise TypeError("unselected rows fill batches apart from those that are scored")
            early = self.memory.knows_all(start.epoch)
            if early is None:
                raise TypeError("some scores are known and others are not, so batches are mixed")
        unscored = [(Phase.SELECT, start.unscored)] if start.unscored else []
        if early:
            others, indices, rows = start.row_buffer, candidate_batches, unscored
        else:
            others, indices, rows = start.index_buffer, [], unscored + candidate_batches
        if sum(others) + start.unscored and (self.memory is None or False in selecting):
            raise TypeError("rows of several kinds wait, which an unselective phase will join")
        # An epoch that was broken off leaves rows in both buffers, and either completes batches.
        leftovers = self.options.leftovers
        drawn, index_buffer = count_batches(indices, self.shape, start.index_buffer, leftovers)
        loaded, row_buffer = count_batches(rows, self.shape, start.row_buffer, leftovers)
        if self.memory is not None:
            return held + drawn + loaded, None
        return held + drawn + loaded, later._replace(
            cadence=clock.cadence.state, index_buffer=index_buffer, row_buffer=row_buffer
        )

    def _phases(
        self, sizes: Iterator[int], epoch: int, clock: PhasePlanner
    ) -> Iterator[tuple[Phase, int]]:
        """Yield the phase and size of the epoch's candidate batches, before they are drawn."""
        if clock.progress.measured is not None and clock.schedule.uses_fractions:
            raise TypeError("progress= decides when selection acts, which is not known ahead")
        for drawn, size in enumerate(sizes):
            phase = clock.phase(epoch, drawn, size)
            if phase is Phase.SELECT and clock.gate is not None:
                raise TypeError("a gate decides when selection acts, which is not known ahead")
            if phase is Phase.SELECT and not self.shape.keeps_everything:
                if self.shape.window is None:
                    raise TypeError("draw='bernoulli' yields a random number of batches")
                if self.scores and self.options.nonfinite is NonFinite.SKIP:
                    raise TypeError("nonfinite='skip' leaves out a number of rows not known ahead")
            yield phase, size
