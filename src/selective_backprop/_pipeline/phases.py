"""How far training has come, and which phase each candidate batch falls into."""

from collections.abc import Callable
from dataclasses import dataclass

from selective_backprop._pipeline.source import Source
from selective_backprop._sampling.schedule import Phase, PlainBatchCadence, Schedule


@dataclass(frozen=True)
class Progress:
    """The fraction of training that is done.

    Attributes:
        source: knows how many candidate batches an epoch has.
        epochs: how long training will be, or None if that is unknown.
        told: returns the fraction if something other than epochs ends training; else None.
    """

    source: Source
    epochs: float | None
    told: Callable[[], float] | None

    def at(self, epoch: int, drawn: int) -> float | None:
        """Return the fraction, in [0, 1], after `drawn` candidate batches of an epoch."""
        if self.told is not None:
            return self.told()
        if self.epochs is None:
            return None
        batches = self.source.batches
        part = drawn / batches if batches else 0.0
        return min(1.0, (epoch + part) / self.epochs)


class PhasePlanner:
    """Say which phase each candidate batch falls into.

    Args:
        schedule: when selection acts.
        cadence: deals out unselective batches while selection acts.
        progress: how far training has come.
    """

    def __init__(self, schedule: Schedule, cadence: PlainBatchCadence, progress: Progress) -> None:
        self.schedule = schedule
        self.cadence = cadence
        self.progress = progress
        self._by_fraction = schedule.uses_fractions

    def phase(self, epoch: int, drawn: int, candidates: int) -> Phase:
        """Return the phase of the next candidate batch.

        Args:
            epoch: the epoch's number.
            drawn: candidate batches of the epoch that were drawn before this one.
            candidates: how many rows it has.
        """
        done = self.progress.at(epoch, drawn) if self._by_fraction else None
        if not self.schedule.selects(epoch, done):
            return Phase.PLAIN
        if self.cadence.active and self.cadence.next_is_plain(candidates):
            return Phase.PLAIN_IN_SELECTION
        return Phase.SELECT

    def standing_at(self, cadence: tuple[int, int]) -> "PhasePlanner":
        """Return a copy of this planner whose cadence is at the count `cadence`."""
        return PhasePlanner(self.schedule, self.cadence.copy(cadence), self.progress)
