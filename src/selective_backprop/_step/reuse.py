"""What a `SelectiveStep` asks of `sb.experimental.ReuseActivations`."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from torch import nn

from selective_backprop._core.types import RowIndices
from selective_backprop.scorers._abstract import AbstractScorer


class AbstractReuse(ABC):
    """Takes results of a step's selection pass into its training forward."""

    @abstractmethod
    def fit(self, scorer: AbstractScorer | None, model: nn.Module) -> None:
        """Refuse a scorer or a model that this cannot serve."""

    @abstractmethod
    def recording(self, candidates: int) -> AbstractContextManager[None]:
        """Return the context of a selection pass."""

    @abstractmethod
    def replaying(self, rows: RowIndices) -> AbstractContextManager[None]:
        """Return the context of the training forward of these rows of the candidates."""
