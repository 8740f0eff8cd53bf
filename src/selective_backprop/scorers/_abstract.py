"""What a scorer is: a way to get one number per candidate."""

from abc import ABC, abstractmethod
from typing import Any

from selective_backprop._context import Context
from selective_backprop._types import RowIndices, Scores


class RunningScorer(ABC):
    """A scorer at work in one training."""

    @abstractmethod
    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        """Score the candidates of one batch; a higher score is more worth training on.

        Args:
            batch: the candidates as they will be trained on, on their device.
            indices: their indices in the data set, or None for a stream.

        Returns:
            One score per candidate, detached, on the model's device.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what the scorer must remember to go on later."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""


class AbstractScorer(ABC):
    """A scorer's specification: immutable, reusable, started once per training."""

    @abstractmethod
    def start(self, context: Context) -> RunningScorer:
        """Return the scorer at work in the training that `context` describes."""
