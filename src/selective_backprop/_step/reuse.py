"""What the training forward of a step may take over from its selection pass."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from selective_backprop.scorers import AbstractScorer


@dataclass
class ReuseCounts:
    """Where the results of a training forward's heavy operations came from; as in `StepStats`."""

    operations: int = 0
    reused: int = 0
    products: float = 0.0
    spared: float = 0.0
    strayed: bool = False


class AbstractReuse(ABC):
    """Says what is taken over."""

    @abstractmethod
    def fit(self, scorer: AbstractScorer | None, model: Any) -> AbstractScorer:
        """Return the scorer whose pass can be reused.

        Raises:
            ConfigurationError: if nothing of it can, or of this model.
        """

    @abstractmethod
    def start(self) -> Any:
        """Return the running object, which records selection passes and replays them."""
