"""What a predictor is, a way to tell an example's score from its last ones; and the plainest."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float32

from selective_backprop._core.options import check_number, check_whole, settle
from selective_backprop._memory.ledger import Observations


class AbstractPredictor(ABC):
    """A way to tell an example's score from its last ones: immutable, without a memory."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """How many of the last scores of each example it looks at; at least 1."""

    @abstractmethod
    def predict(self, observed: Observations, epoch: int) -> Float32[np.ndarray, " example"]:
        """Return a score for every example that has one observation or more.

        Args:
            observed: the last scores of each example and their epochs, newest first.
            epoch: the epoch to predict for, later than all of them.

        Returns:
            A higher score is more worth training on; of any unit, since only ranks count. NaN
            where nothing was observed.
        """


@final
@dataclass(frozen=True)
class Average(AbstractPredictor):
    """Predict an exponentially weighted average of the last scores.

    Args:
        decay: weight of a score relative to the next newer one, in [0, 1); 0 is the last score
            itself.
        depth: how many scores are averaged, at least 1.

    Raises:
        ConfigurationError: if a value is out of its range.
    """

    decay: float = 0.5
    depth: int = 4

    def __post_init__(self) -> None:
        settle(self, check_number, "decay", below=1)
        settle(self, check_whole, "depth")

    def predict(self, observed: Observations, epoch: int) -> Float32[np.ndarray, " example"]:
        """Return the average of what there is."""
        scores = observed.scores
        weights = self.decay ** np.arange(len(scores), dtype=np.float64)[:, None]
        known = ~np.isnan(scores)
        total = (weights * np.where(known, scores, 0.0)).sum(0)
        with np.errstate(invalid="ignore"):  # 0 / 0, where nothing was observed
            return (total / (weights * known).sum(0)).astype(np.float32)
