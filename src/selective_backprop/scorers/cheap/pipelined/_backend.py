"""Where candidates are scored while training goes on."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import Tensor

from selective_backprop._core.types import RowIndices, Scores


class ScoringBackend(ABC):
    """A copy of a model, and what scores with it beside the training."""

    @abstractmethod
    def begin(self, batch: Any, indices: RowIndices | None, *, renew: bool) -> Callable[[], Scores]:
        """Begin to score the candidates of one batch.

        Args:
            batch: the candidates.
            indices: their indices in the data set, or None for a stream.
            renew: whether the copy is first to be brought up to date with the model.

        Returns:
            What waits for the scores and returns them.
        """

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """Return copies of the parameters and buffers that batches are scored with by now."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what the scorer within must remember, when all that was begun is scored."""

    @abstractmethod
    def resume(self, weights: dict[str, Tensor] | None, state: dict[str, Any] | None) -> None:
        """Go on from weights of the copy and the state of the scorer within, before any batch.

        Args:
            weights: as `weights()` returned them; None if the copy is about to be renewed.
            state: as `state_dict()` returned it; None if there was none yet.
        """
