"""When selection acts, and when everything is trained on."""

import math
from dataclasses import dataclass
from enum import Enum

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance, check_number, check_whole, settle
from selective_backprop._sampling.gate import AbstractGate


class Phase(Enum):
    """What happens to a candidate batch; decided when its indices are drawn.

    `PLAIN` trains on all of it, after the rows that wait; `SELECT` selects from it; `PRESELECTED`
    was selected before it was loaded; `RESCORE` is scored for later epochs and not trained on.
    """

    PLAIN = "plain"
    SELECT = "select"
    PRESELECTED = "chosen"
    RESCORE = "rescore"


@dataclass(frozen=True)
class Schedule:
    """When selection acts: after the warm-up epochs, and from `start` to `end` of training.

    Training is measured in candidates, not in optimiser steps. So the warm-up does not become
    longer if a strategy takes fewer steps.

    Args:
        warmup_epochs: whole epochs at the beginning that train on everything.
        start: fraction of training, in [0, 1), before which everything is trained on.
        end: fraction of training, in (`start`, 1], from which everything is trained on again.
        gate: judges from scores whether selection pays at the moment; None always selects.

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
                f"selection needs 0 <= start < end <= 1, got start={self.start}, end={self.end}"
            )
        check_instance("gate", self.gate, AbstractGate, "VarianceGate()", optional=True)

    @property
    def uses_fractions(self) -> bool:
        """Whether `start` or `end` is used; if so, the length of training must be known."""
        return self.start > 0.0 or self.end < 1.0

    def check_length(self, epochs: float | None, batches: int | None) -> None:
        """Refuse a training in which selection would never act.

        Args:
            epochs: length of the training, or None if unknown.
            batches: candidate batches per epoch, or None if unknown.

        Raises:
            ConfigurationError: if selection acts on none of the training's batches.
        """
        if epochs is None:
            return
        if self.warmup_epochs >= epochs * self.end:
            raise ConfigurationError(
                f"warmup_epochs={self.warmup_epochs} leaves nothing to select in {epochs:g} "
                f"epochs that select until end={self.end}; train longer, or warm up for less"
            )
        if batches is None or not self.uses_fractions:
            return
        total = epochs * batches
        # The first batch is drawn at progress 0, which is before any start above 0. Taking off
        # 1e-9 keeps a product that should be whole from being rounded up to the next batch.
        start = max(self.start > 0.0, math.ceil(self.start * total - 1e-9))
        first = max(self.warmup_epochs * batches, start)
        if first >= total or first / total >= self.end:
            raise ConfigurationError(
                f"start={self.start} and end={self.end} leave none of {total:g} candidate batches "
                "to select from; train longer, or select for a larger part of training"
            )

    def selects(self, epoch: int, progress: float | None) -> bool:
        """Return whether selection acts.

        Args:
            epoch: the epoch's number, from 0.
            progress: fraction of training done; None if unknown, which is allowed if neither
                `start` nor `end` is used.
        """
        if epoch < self.warmup_epochs:
            return False
        if self.start == 0.0 and self.end == 1.0:
            return True
        return progress is not None and self.start <= progress < self.end
