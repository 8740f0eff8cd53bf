"""How far training is, and which phase each candidate batch falls into."""

from collections.abc import Callable
from dataclasses import dataclass

from selective_backprop._pipeline.source import Source
from selective_backprop._sampling.schedule import Phase, RunningGate, Schedule
from selective_backprop.selectors import Paced, RunningSelector

SCORED = (Phase.SELECT, Phase.RESCORE)


@dataclass(frozen=True)
class Progress:
    source: Source
    epochs: float | None  # of the whole training; None if unknown
    measured: Callable[[], float] | None  # the user's `progress`, which returns the fraction

    def at(self, epoch: int, drawn: int) -> float | None:
        if self.measured is not None:
            return self.measured()
        if self.epochs is None:
            return None
        batches = self.source.batches
        part = drawn / batches if batches else 0.0
        return min(1.0, (epoch + part) / self.epochs)


class PhasePlanner:
    def __init__(self, schedule: Schedule, progress: Progress, gate: RunningGate | None) -> None:
        self.schedule, self.progress = schedule, progress
        self.gate = gate  # decides from scores whether to select yet
        self.by_fraction = schedule.uses_fractions

    @property
    def turns_between_epochs(self) -> bool:
        """Whether in each epoch either all batches are selected from or none."""
        if not self.by_fraction:
            return True
        if (epochs := self.progress.epochs) is None:
            return False
        turns = self.schedule.start * epochs, self.schedule.end * epochs
        return all(abs(turn - round(turn)) < 1e-9 for turn in turns)

    def phase(self, epoch: int, drawn: int) -> Phase:
        done = self.progress.at(epoch, drawn) if self.by_fraction else None
        return Phase.SELECT if self.schedule.selects(epoch, done) else Phase.PLAIN

    def pace(self, selector: RunningSelector, epoch: int) -> None:
        if isinstance(selector, Paced):
            selector.begin(self.progress.at(epoch, 0) or 0.0)

    def on_arrival(self, phase: Phase) -> Phase:
        """Return the phase of a loaded batch, now that the gate knows the batches before it."""
        if phase is Phase.SELECT and self.gate is not None and not self.gate.is_open:
            return Phase.PLAIN
        return phase
