"""Predictors for `Predicted`: they predict an example's next score from its last scores."""

import importlib.util
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from selective_backprop._core.errors import ConfigurationError, installing
from selective_backprop._core.options import check_number, check_whole, settle
from selective_backprop._core.types import Float32, Float64, Int64, Num
from selective_backprop._memory.ledger import Observations

Features = Float64[np.ndarray, "example feature"]

FEWEST = 8  # examples to learn from; fewer say more about chance than about scores
_CHUNK = 1024  # examples at once; with 256 points, the kernel takes 2 MiB


class AbstractPredictor(ABC):
    """Predicts an example's next score from its last scores; keeps no state."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """How many of each example's last scores are used; at least 1."""

    @abstractmethod
    def predict(self, observed: Observations, epoch: int) -> Float32[np.ndarray, " example"]:
        """Return a predicted score for every example that was scored at least once.

        Args:
            observed: the last scores of each example and their epochs, newest first.
            epoch: the number of the epoch to predict for, later than all observed epochs.

        Returns:
            Predicted scores, higher for examples more useful to train on. Strategies that rank
            examples use only the order of the scores. NaN for an example that was never scored.
        """


@final
@dataclass(frozen=True)
class Average(AbstractPredictor):
    """Predict an exponentially weighted average of the last scores.

    Args:
        decay: in [0, 1). The last score has weight 1, the one before it `decay`, the one before
            that `decay ** 2`, and so on. With 0, the last score itself is predicted.
        depth: how many of the last scores are averaged, at least 1.
    """

    decay: float = 0.5
    depth: int = 4

    def __post_init__(self) -> None:
        settle(self, check_number, "decay", below=1)
        settle(self, check_whole, "depth")

    def predict(self, observed: Observations, epoch: int) -> Float32[np.ndarray, " example"]:
        scores = observed.scores
        weights = self.decay ** np.arange(len(scores), dtype=np.float64)[:, None]
        known = ~np.isnan(scores)
        total = (weights * np.where(known, scores, 0.0)).sum(0)
        with np.errstate(invalid="ignore"):  # 0 / 0, where nothing was observed
            return (total / (weights * known).sum(0)).astype(np.float32)


@final
@dataclass(frozen=True)
class GaussianProcess(AbstractPredictor):
    """Predict the next score by a Gaussian process, from the last scores and their epochs.

    When an epoch starts, the process learns to predict the newest score of an example from its
    earlier scores, and from the numbers of epochs between scores. It then predicts the next score
    from the last `depth - 1` scores. If an example has fewer scores, its last score is the
    prediction. If fewer than 8 examples have `depth` scores, every prediction is a last score.

    In each epoch, learning takes some dozens of steps of `O(points ** 3)` operations each, and
    predicting takes `O(examples * points)` operations. Needs scikit-learn: `pip install
    'selective-backprop[predict]'`.

    Args:
        points: the largest number of examples to learn from, at least 8. If more examples have
            `depth` scores, `points` of them are picked, spread evenly from low to high scores.
        depth: number of remembered scores of each example, at least 2; the newest is the target.

    Source:
        Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, chapters 2 and 5.
    """

    points: int = 256
    depth: int = 3

    def __post_init__(self) -> None:
        settle(self, check_whole, "points", least=FEWEST)
        settle(self, check_whole, "depth", least=2)
        check_installed("GaussianProcess")

    def predict(self, observed: Observations, epoch: int) -> Float32[np.ndarray, " example"]:
        """Return the score expected in `epoch`, or the last score where none can be predicted."""
        depth = int(self.depth)
        scores, epochs = observed.scores[:depth], observed.epochs[:depth]
        predicted = scores[0].copy()
        pairs = pick_pairs(scores, depth, self.points)
        if not len(pairs):
            return predicted
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        sizes = np.abs(scores[0, np.isfinite(scores[0])]).astype(np.float64)
        unit = float(np.median(sizes) or sizes.mean() or 1.0)
        # Close to a logarithm for scores well above the unit, but defined for 0 and below, too.
        flat = np.arcsinh(scores.astype(np.float64) / unit)
        values = flat[:, pairs]
        past = look_back(values[1:], epochs[1:, pairs], epochs[0, pairs])
        scaled = scaling(past)
        kernel = ConstantKernel() * RBF() + WhiteKernel()
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        with warnings.catch_warnings():
            # it warns if a length is at its bound: a feature says nothing, which is common
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(scaled(past), values[0] - values[1])
        known = np.flatnonzero(np.isfinite(flat[:-1]).all(0))
        for start in range(0, len(known), _CHUNK):
            some = known[start : start + _CHUNK]
            features = look_back(flat[:-1, some], epochs[:-1, some], epoch)
            values = flat[0, some] + process.predict(scaled(features))
            predicted[some] = np.sinh(values) * unit
        return predicted


def pick_pairs(
    scores: Float32[np.ndarray, "lag example"], depth: int, points: float
) -> Int64[np.ndarray, " pair"]:
    """Return examples with `depth` scores to learn from, at most `points`; none if there are few.

    They are spread evenly over low and high scores, so nothing is random.
    """
    complete = np.flatnonzero(np.isfinite(scores).all(0))
    if len(scores) < depth or len(complete) < FEWEST:
        return complete[:0]
    ascending = complete[np.argsort(scores[1, complete], kind="stable")]
    count = int(min(points, len(complete)))
    return ascending[(2 * np.arange(count) + 1) * len(complete) // (2 * count)]


def scaling(features: Features) -> Callable[[Features], Features]:
    """Return a function that standardises other features by the mean and deviation of these.

    It first clips them to the range of these: gaps of three epochs say nothing about one of two.
    """
    low, high, mean = features.min(0), features.max(0), features.mean(0)
    deviation = np.where(low < high, features.std(0), 1.0)
    return lambda values: (np.clip(values, low, high) - mean) / deviation


def look_back(
    values: Float64[np.ndarray, "lag example"],
    epochs: Num[np.ndarray, "lag example"],
    epoch: int | Num[np.ndarray, " example"],
) -> Features:
    """Return the features that predict a later `epoch` from examples' last values, newest first.

    These are the last value, differences of successive values, and the epochs since and between.
    """
    gaps = (epoch - epochs[:1], -np.diff(epochs, axis=0))
    return np.concatenate((values[:1], -np.diff(values, axis=0), *gaps)).T


def check_installed(predictor: str) -> None:
    """Refuse a predictor if scikit-learn is missing; do not import it, only predicting needs it."""
    if importlib.util.find_spec("sklearn") is None:
        raise ConfigurationError(
            f"{predictor}() needs scikit-learn, which is not installed; run {installing('predict')}"
        )
