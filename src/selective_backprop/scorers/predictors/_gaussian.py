"""Predict a score with a Gaussian process, learned from how the scores of examples moved."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float32, Float64

from selective_backprop._core.options import check_whole, settle
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

_Regression = Callable[[Float64[np.ndarray, "example feature"]], Float64[np.ndarray, " example"]]


@final
@dataclass(frozen=True)
class GaussianProcess(AbstractPredictor):
    """Predict the next score by a Gaussian process over the last ones and the epochs between.

    It learns anew at each epoch's start how far the newest score of an example lies from the
    one before, given the scores until then, and predicts the next from that. An example with
    fewer than `depth - 1` scores is predicted its last one, and so is every example while fewer
    than 8 have `depth` scores. Epochs gone by count as far as they differed among the examples
    that it learns from; where all were scored in the same epochs, they say nothing.

    An epoch costs `O(points ** 3)` to learn, some dozens of times over, and
    `O(examples * points)` to predict, in pieces, so that little more memory is needed than the
    scores themselves take.

    Needs scikit-learn: `pip install 'selective-backprop[predict]'`.

    Args:
        points: how many examples it learns from at most, at least 8; evenly spread over the
            ranks of their scores.
        depth: how many scores are remembered, the one that is learned to predict among them;
            at least 2.

    Raises:
        ConfigurationError: if a value is out of its range or scikit-learn is not installed.

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
        """Return the score expected in `epoch`, or the last one where that cannot be told."""
        scores, epochs = observed.scores[: self.depth], observed.epochs[: self.depth]
        predicted = scores[0].copy()
        pairs = pick_pairs(scores, self.depth, self.points)
        if not len(pairs):
            return predicted
        unit = _typical_size(scores[0])
        values = _flatten(scores[:, pairs], unit)
        past = look_back(values[1:], epochs[1:, pairs], epochs[0, pairs])
        box = Box.around(past)
        change_of = _learn(box.standardise(past), values[0] - values[1])
        for examples in in_chunks(len(predicted)):
            values = _flatten(scores[:-1, examples], unit)
            known = np.isfinite(values).all(0)
            if known.any():
                features = look_back(values, epochs[:-1, examples], epoch)[known]
                values = values[0, known] + change_of(box.standardise(features))
                predicted[examples][known] = np.sinh(values) * unit
        return predicted


def _typical_size(scores: Float32[np.ndarray, " example"]) -> float:
    """Return the median size of the scores that are finite; positive."""
    sizes = np.abs(scores[np.isfinite(scores)]).astype(np.float64)
    return float(np.median(sizes) or sizes.mean() or 1.0)


def _flatten(
    scores: Float32[np.ndarray, "lag example"], unit: float
) -> Float64[np.ndarray, "lag example"]:
    # like a logarithm for scores well above the unit, yet defined for any sign and zero
    return np.arcsinh(scores.astype(np.float64) / unit)


def _learn(
    features: Float64[np.ndarray, "pair feature"], changes: Float64[np.ndarray, " pair"]
) -> _Regression:
    """Return what predicts changes from standardised features, its kernel fitted to them."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    process = GaussianProcessRegressor(
        ConstantKernel() * RBF() + WhiteKernel(),
        normalize_y=True,
        random_state=0,
    )
    with warnings.catch_warnings():
        # a length at its bound means that a feature tells nothing, as is often so
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(features, changes)
    return process.predict
