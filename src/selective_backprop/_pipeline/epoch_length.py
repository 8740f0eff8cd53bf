"""How many batches an epoch will yield, where that can be known in advance."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from selective_backprop._pipeline.cursor import EpochStart, Waits
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.options import LoaderOptions
from selective_backprop._pipeline.phases import PhasePlanner
from selective_backprop._pipeline.rows import Leftovers, Shape
from selective_backprop._pipeline.score_memory import ScoreMemory
from selective_backprop._pipeline.source import Source
from selective_backprop._sampling.schedule import Phase


@dataclass(frozen=True)
class LengthPlanner:
    """Count the training batches that an epoch will yield.

    Attributes:
        source: knows the sizes of the candidate batches.
        clock: says which phase a batch falls into.
        shape: the sizes of batches and windows.
        options: the user's, of which `leftovers` and `nonfinite` matter.
        scores: whether anything is scored.
        selects_before_loading: whether all selection happens before loading.
        memory: what is remembered of each example; None if nothing is.
    """

    source: Source
    clock: PhasePlanner
    shape: Shape
    options: LoaderOptions
    scores: bool
    selects_before_loading: bool
    memory: ScoreMemory | None

    def batches(self, start: EpochStart) -> int:
        """Return the number of batches of the epoch that starts at `start`.

        Raises:
            TypeError: if it cannot be known in advance.
        """
        if self.shape.keeps_everything and self.shape.unchanged:
            return self.source.length() + bool(start.held)
        sizes = self.source.sizes()
        if sizes is None:
            raise TypeError("the loader does not know the sizes of its batches in advance")
        clock = self.clock.standing_at(start.cadence)
        candidate_batches = list(self._phases(sizes, start.epoch, clock))
        selecting = {phase is Phase.SELECT for phase, _ in candidate_batches}
        if self.memory is not None and not self.shape.unchanged and len(selecting) > 1:
            raise TypeError("unselected rows fill batches apart from those that are scored")
        waits, others = (start.row_buffer, start.index_buffer)
        besides: list[tuple[Phase, int]] = []  # rows for the buffer not drawn into
        unscored = [(Phase.SELECT, start.unscored)] if start.unscored else []
        if self._draws_early(start.epoch):
            waits, others, besides = others, waits, unscored
        if others.rows + others.candidates + start.unscored and (
            self.memory is None or any(phase is not Phase.SELECT for phase, _ in candidate_batches)
        ):
            raise TypeError("rows of several kinds wait, which an unselective phase will join")
        # An epoch that was broken off leaves rows in both buffers, and either completes batches.
        own = candidate_batches if besides else unscored + candidate_batches
        return bool(start.held) + sum(
            self._fill(rows, buffer).batches for buffer, rows in ((waits, own), (others, besides))
        )

    def lengths(self, start: EpochStart, epochs: int) -> list[int]:
        """Return the number of batches of each of `epochs` epochs, from `start` on.

        Raises:
            TypeError: if one of them cannot be known in advance.
        """
        found = []
        for _ in range(epochs):
            found.append(self.batches(start))
            start = self._after(start)
        return found

    def _after(self, start: EpochStart) -> EpochStart:
        """Return the start of the epoch that follows the one starting at `start`."""
        later = start._replace(epoch=start.epoch + 1, held=0)
        if self.shape.keeps_everything and self.shape.unchanged:
            return later
        if self.memory is not None:
            raise TypeError("what is remembered decides how many batches later epochs yield")
        clock = self.clock.standing_at(start.cadence)
        candidate_batches = self._phases(self.source.sizes() or iter(()), start.epoch, clock)
        waits = self._fill(
            candidate_batches,
            start.index_buffer if self.selects_before_loading else start.row_buffer,
        )
        left = Waits(waits.waiting, waits.chosen)
        index_buffer, row_buffer = (
            (left, start.row_buffer) if self.selects_before_loading else (start.index_buffer, left)
        )
        return later._replace(
            cadence=clock.cadence.state, index_buffer=index_buffer, row_buffer=row_buffer
        )

    def _fill(self, candidate_batches: Iterable[tuple[Phase, int]], buffer: Waits) -> "Filled":
        return fill_batches(
            candidate_batches,
            self.shape,
            waiting=buffer.candidates,
            chosen=buffer.rows,
            leftovers=self.options.leftovers,
        )

    def _draws_early(self, epoch: int) -> bool:
        """Return whether an epoch selects before loading, for all of its examples or none."""
        if self.memory is None:
            return self.selects_before_loading
        known = self.memory.knows_all(epoch)
        if known is None:
            raise TypeError("some scores are known and others are not, so batches are mixed")
        return known

    def _phases(
        self, sizes: Iterator[int], epoch: int, clock: PhasePlanner
    ) -> Iterator[tuple[Phase, int]]:
        """Yield the phase and size of the epoch's candidate batches, before they are drawn."""
        if clock.progress.told is not None and clock.schedule.uses_fractions:
            raise TypeError("progress= decides when selection acts, which is not known ahead")
        for drawn, size in enumerate(sizes):
            phase = clock.phase(epoch, drawn, size)
            if phase is Phase.SELECT and clock.schedule.gate is not None:
                raise TypeError("a gate decides when selection acts, which is not known ahead")
            if phase is Phase.SELECT and not self.shape.keeps_everything:
                if self.shape.window is None:
                    raise TypeError("draw='bernoulli' yields a random number of batches")
                if self.scores and self.options.nonfinite is NonFinite.SKIP:
                    raise TypeError("nonfinite='skip' leaves out a number of rows not known ahead")
            yield phase, size


class Filled(NamedTuple):
    """What exact draws have yielded and left by an epoch's end.

    Attributes:
        batches: training batches that it yielded.
        waiting: candidates that wait for a full window.
        chosen: chosen rows that wait for a full batch.
    """

    batches: int
    waiting: int
    chosen: int


def fill_batches(
    candidate_batches: Iterable[tuple[Phase, int]],
    shape: Shape,
    *,
    waiting: int,
    chosen: int,
    leftovers: Leftovers,
) -> Filled:
    """Return what exact draws yield and leave in an epoch, from sizes alone.

    Args:
        candidate_batches: the phase and size of each candidate batch to come.
        shape: the sizes of batches and windows, for exact draws.
        waiting: candidates that wait for a full window now.
        chosen: chosen rows that wait for a full batch now.
        leftovers: what happens to the rest.
    """
    size, window = shape.batch_size, shape.window or 1
    batches, chosen = divmod(chosen, size or chosen or 1)
    windows, waiting = divmod(waiting, window)
    batches += windows
    for phase, count in candidate_batches:
        if phase is Phase.SELECT and not shape.keeps_everything:
            windows, waiting = divmod(waiting + count, window)
            batches += windows
            continue
        if phase is Phase.PLAIN:
            chosen, waiting = chosen + waiting, 0
        if shape.unchanged and not chosen:
            batches += 1
            continue
        full, chosen = divmod(chosen + count, size or chosen + count)
        batches += full
    if leftovers is Leftovers.FLUSH:
        if waiting:
            assert size is not None
            chosen += min(waiting, max(1, round(waiting * size / window)))
        batches += -(-chosen // (size or chosen or 1))
    if leftovers is not Leftovers.CARRY:
        waiting = chosen = 0
    return Filled(batches, waiting, chosen)
