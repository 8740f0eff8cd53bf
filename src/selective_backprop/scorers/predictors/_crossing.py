"""Predict whether a score will be among those that selection takes, instead of the score itself."""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float32, Float64

from selective_backprop._core.options import check_number, check_whole, settle
from selective_backprop._memory.ledger import Observations
from selective_backprop.scorers.predictors._predictor import AbstractPredictor
from selective_backprop.scorers.predictors._score_features import (
    FEWEST,
    Box,
    check_installed,
    in_chunks,
    look_back,
    pick_pairs,
)


@final
@dataclass(frozen=True)
class Crossing(AbstractPredictor):
    """Predict the probability that an example's next score is among the highest.

    A logistic regression learns at each epoch's start which newest scores are among the highest
    `rate` of all newest ones, from where the same examples ranked before and when. An example
    without an earlier score is taken to have moved as the average one did. While fewer than 8
    examples have `depth` scores, and where either all or none of them are among the highest,
    the share of lower last scores is predicted instead.

    An epoch costs `O(examples * log(examples))` to rank, and `O(points)` to learn.

    Needs scikit-learn: `pip install 'selective-backprop[predict]'`.

    Args:
        rate: share of the examples that counts as the highest, in (0, 1]; the strategy's own.
        depth: how many scores are remembered, the one that is learned to predict among them;
            at least 2.
        points: how many examples it learns from at most, at least 8; evenly spread over the
            ranks of their scores.

    Raises:
        ConfigurationError: if a value is out of its range or scikit-learn is not installed.
    """

    rate: float = 1 / 3
    depth: int = 3
    points: int = 4096

    def __post_init__(self) -> None:
        settle(self, check_number, "rate", above=0, most=1)
        settle(self, check_whole, "depth", least=2)
        settle(self, check_whole, "points", least=FEWEST)
        check_installed("Crossing")

    def predict(self, observed: Observations, epoch: int) -> Float32[np.ndarray, " example"]:
        """Return the probabilities, or shares of lower scores where they cannot be learned."""
        scores, epochs = observed.scores[: self.depth], observed.epochs[: self.depth]
        shares = np.stack([_shares_of_lower(lag) for lag in scores])
        pairs = pick_pairs(scores, self.depth, self.points)
        crossed = shares[0, pairs] >= 1.0 - self.rate
        if crossed.all() or not crossed.any():
            return shares[0].astype(np.float32)
        from sklearn.linear_model import LogisticRegression

        past = look_back(shares[1:, pairs], epochs[1:, pairs], epochs[0, pairs])
        box = Box.around(past)
        learned = LogisticRegression().fit(box.standardise(past), crossed)
        predicted = np.empty_like(scores[0])
        for examples in in_chunks(len(predicted)):
            now = look_back(shares[:-1, examples], epochs[:-1, examples], epoch)
            # 0 is the average of what was learned from
            now = np.nan_to_num(box.standardise(now))
            predicted[examples] = learned.predict_proba(now)[:, 1]
        predicted[np.isnan(scores[0])] = np.nan
        return predicted


def _shares_of_lower(scores: Float32[np.ndarray, " example"]) -> Float64[np.ndarray, " example"]:
    """Return the share of the known scores that each exceeds; NaN where it is not known."""
    known = ~np.isnan(scores)
    ascending = np.sort(scores[known])
    lower = np.searchsorted(ascending, scores) / max(1, len(ascending))
    return np.where(known, lower, np.nan)
