"""A predictor for `Predicted`: the probability that an example's next score is high enough."""

from dataclasses import dataclass
from typing import final

import numpy as np

from selective_backprop._core.options import check_number, check_whole, settle
from selective_backprop._core.types import Float32, Float64
from selective_backprop._memory.ledger import Observations
from selective_backprop.scorers import _predictors as shared


@final
@dataclass(frozen=True)
class Crossing(shared.AbstractPredictor):
    """Experimental: predict the probability that an example's next score is among the highest.

    When an epoch starts, a logistic regression learns to predict whether an example's newest score
    is among the highest. Its inputs are the ranks of the example's earlier scores, and the numbers
    of epochs between scores. If an example has fewer than `depth - 1` scores, each missing input is
    set to the average of this input over the examples that were learned from.

    Nothing can be learned if fewer than 8 examples have `depth` scores, or if all or none of these
    examples have a newest score among the highest. An example's prediction is then the share of
    examples with a lower last score.

    Needs scikit-learn: `pip install 'selective-backprop[predict]'`.

    Args:
        rate: the share of the scores that counts as the highest, in (0, 1]. Use the share that
            your strategy keeps.
        depth: number of scores that are remembered of each example, at least 2. In learning, the
            newest score is the target.
        points: the largest number of examples to learn from, at least 8; see `GaussianProcess`.

    Raises:
        ConfigurationError: if a value is out of its range or scikit-learn is not installed.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 3.3: "predict whether the loss is high enough
        to cross the threshold for selection".
    """

    rate: float = 1 / 3
    depth: int = 3
    points: int = 4096

    def __post_init__(self) -> None:
        settle(self, check_number, "rate", above=0, most=1)
        settle(self, check_whole, "depth", least=2)
        settle(self, check_whole, "points", least=shared.FEWEST)
        shared.check_installed("Crossing")

    def predict(self, observed: Observations, epoch: int) -> Float32[np.ndarray, " example"]:
        """Return the probabilities; if nothing is learned, the shares of lower last scores."""
        depth = int(self.depth)
        scores, epochs = observed.scores[:depth], observed.epochs[:depth]
        shares = np.stack([_shares_of_lower(lag) for lag in scores])
        pairs = shared.pick_pairs(scores, depth, self.points)
        crossed = shares[0, pairs] >= 1.0 - self.rate
        if crossed.all() or not crossed.any():
            return shares[0].astype(np.float32)
        from sklearn.linear_model import LogisticRegression

        epochs = np.where(epochs < 0, np.nan, epochs)
        past = shared.look_back(shares[1:, pairs], epochs[1:, pairs], epochs[0, pairs])
        scaled = shared.scaling(past)
        learned = LogisticRegression().fit(scaled(past), crossed)
        now = scaled(shared.look_back(shares[:-1], epochs[:-1], epoch))
        # 0 is the average of the examples learned from
        predicted = learned.predict_proba(np.nan_to_num(now))[:, 1].astype(np.float32)
        predicted[np.isnan(scores[0])] = np.nan
        return predicted


def _shares_of_lower(scores: Float32[np.ndarray, " example"]) -> Float64[np.ndarray, " example"]:
    """Return the share of the known scores that each score exceeds; NaN for unknown scores."""
    known = ~np.isnan(scores)
    ascending = np.sort(scores[known])
    lower = np.searchsorted(ascending, scores) / max(1, len(ascending))
    return np.where(known, lower, np.nan)
