"""What works in one training run, and what it is told about this training."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from selective_backprop._core.options import check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import LossesOf, OutputsOf


class Running(ABC):
    """A scorer, a selector or a gate at work in one training run."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to continue a saved training run."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""


class Unchanging(Running):
    """Keeps nothing from one call to the next."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        Saved(state).fields()


@dataclass(frozen=True)
class Context:
    """The training in which a scorer or a selector works.

    Attributes:
        batch_size: number of rows in a full training batch.
        window: number of candidates from which one full training batch is chosen; None if the
            number of rows to choose is not fixed, as with `Draw.BERNOULLI`.
        model: the model in training, or None if nothing is scored.
        losses: `callable(model, batch)` that returns one loss per example, `[candidate]`, on the
            model's device; None if nothing is scored.
        outputs: `callable(model, batch)` that returns `(outputs, targets)`; None if there is none.
        device: the device that candidates are moved to; None if they stay where they are loaded.
        examples: number of examples in the data set, or None for a stream.
        rate: the share of the candidates that the strategy aims to keep; None if unknown.
    """

    batch_size: int
    window: int | None
    model: nn.Module | None = None
    losses: LossesOf | None = None
    outputs: OutputsOf | None = None
    device: torch.device | None = None
    examples: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        settle(self, check_whole, "batch_size")
        settle(self, check_whole, "window", optional=True)
        settle(self, check_whole, "examples", least=0, optional=True)
        settle(self, check_number, "rate", above=0, most=1, optional=True)

    def quota(self, candidates: int) -> int:
        """Return the share `batch_size / window`, at least one; all if there is no window."""
        if self.window is None:
            return candidates
        return min(candidates, max(1, round(candidates * self.batch_size / self.window)))
