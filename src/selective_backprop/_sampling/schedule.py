"""When to select, and when to train on everything."""

import math
from dataclasses import dataclass
from enum import Enum

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance, check_number, check_whole, settle
from selective_backprop._sampling.gate import AbstractGate


class Phase(Enum):
    """What happens to a candidate batch. This is decided when its indices are drawn.

    `PLAIN`: all of it is trained on, after rows that wait. `SELECT`: rows are selected from it.
    `PRESELECTED`: it was selected before loading. `RESCORE`: it is only scored, for later epochs.
    """

    PLAIN = "plain"
    SELECT = "select"
    PRESELECTED = "chosen"
    RESCORE = "rescore"


@dataclass(frozen=True)
class Schedule:
    """When to select: after the warm-up epochs, and between `start` and `end` of training.

    Fractions of training count the examples that your data loader offers, not optimiser steps. So
    they do not depend on how many examples are skipped.

    Args:
        warmup_epochs: number of whole epochs at the beginning that train on everything.
        start: fraction of training, in [0, 1), before which everything is trained on.
        end: fraction of training, in (`start`, 1], from which everything is trained on again.
        gate: decides from scores whether selection pays at the moment; None always selects.

    Raises:
        ConfigurationError: if a value is out of its range or would disable selection.
    """

    warmup_epochs: int = 0
    start: float = 0.0
    end: float = 1.0
    gate: AbstractGate | None = None

    def __post_init__(self) -> None:
        hint = "use start= for a fraction of training"
        settle(self, check_whole, "warmup_epochs", least=0, hint=hint)
        settle(self, check_number, "start", below=1)
        settle(self, check_number, "end", above=0, most=1)
        if not self.start < self.end:
            raise ConfigurationError(
                f"0 <= start < end <= 1 is needed, got start={self.start}, end={self.end}"
            )
        check_instance("gate", self.gate, AbstractGate, "VarianceGate()", optional=True)

    @property
    def uses_fractions(self) -> bool:
        """Whether `start` or `end` is used; if so, the length of training must be known."""
        return self.start > 0.0 or self.end < 1.0

    def check_length(self, epochs: float | None, batches: int | None) -> None:
        """Refuse a training of so many epochs and batches per epoch that never selects.

        None stands for an unknown number.
        """
        if epochs is None:
            return
        if self.warmup_epochs >= epochs * self.end:
            raise ConfigurationError(
                f"warmup_epochs={self.warmup_epochs} leaves nothing to select in {epochs:g} epochs "
                f"with end={self.end}; train longer, or with fewer warmup_epochs"
            )
        if batches is None or not self.uses_fractions:
            return
        total = epochs * batches
        # The first batch is drawn at progress 0, before any start above 0. Subtracting 1e-9 keeps
        # a product that should be whole from being rounded up to the next batch.
        start = max(self.start > 0.0, math.ceil(self.start * total - 1e-9))
        first = max(self.warmup_epochs * batches, start)
        if first >= total or first / total >= self.end:
            raise ConfigurationError(
                f"start={self.start} and end={self.end} leave none of {total:g} batches to select "
                "from; train longer, or move start and end apart"
            )

    def selects(self, epoch: int, progress: float | None) -> bool:
        """Return whether the schedule selects now, leaving its gate aside.

        `progress` is the fraction of training that is done; None if unknown.
        """
        if epoch < self.warmup_epochs or (self.start == 0.0 and self.end == 1.0):
            return epoch >= self.warmup_epochs
        return progress is not None and self.start <= progress < self.end
