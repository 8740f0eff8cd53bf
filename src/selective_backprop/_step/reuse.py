"""What the training forward of a step may take over from its selection pass."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

from selective_backprop._core.types import RowIndices
from selective_backprop.scorers import AbstractScorer


@dataclass
class ReuseCounts:
    """Where the results of a training forward's heavy operations came from; as in `StepStats`."""

    operations: int = 0
    reused: int = 0
    products: float = 0.0
    spared: float = 0.0
    strayed: bool = False


class RunningReuse(Protocol):
    """Records selection passes and replays them, one after the other."""

    def recording(self, candidates: int) -> AbstractContextManager[None]:
        """Record the selection pass over `candidates` rows that runs in the body."""
        ...

    def replaying(self, rows: RowIndices) -> AbstractContextManager[ReuseCounts]:
        """Reuse the record in the training forward of `rows` that runs in the body; use it up."""
        ...

    def count_bytes(self, model: nn.Module) -> int:
        """Return the memory that the record holds beside the model's own."""
        ...


class AbstractReuse(ABC):
    """Says what is taken over."""

    @abstractmethod
    def fit(self, scorer: AbstractScorer | None, model: Any) -> AbstractScorer:
        """Return the scorer whose pass can be reused.

        Raises:
            ConfigurationError: if nothing of it can, or of this model.
        """

    @abstractmethod
    def start(self) -> RunningReuse:
        """Return the running object."""
