"""What a predictor is: a way to tell an example's score from its last ones."""

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float32

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
