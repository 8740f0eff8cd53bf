"""What a predictor learns from: where examples stood before their newest score, and when."""

import importlib.util
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int32, Int64

from selective_backprop._core.errors import ConfigurationError

FEWEST = 8
"""Pairs below which nothing is learned: a handful says more about chance than about scores."""

_CHUNK = 1024  # 2 MiB of a kernel with 256 points


class Box(NamedTuple):
    """The range of some features, in which they are brought to a common scale.

    Attributes:
        low: the smallest of each feature.
        high: the largest.
        mean: of each.
        deviation: of each; 1 for a feature that does not vary.
    """

    low: Float64[np.ndarray, " feature"]
    high: Float64[np.ndarray, " feature"]
    mean: Float64[np.ndarray, " feature"]
    deviation: Float64[np.ndarray, " feature"]

    @classmethod
    def around(cls, features: Float64[np.ndarray, "pair feature"]) -> "Box":
        """Return the box that just holds some features; at least one pair."""
        low, high = features.min(0), features.max(0)
        deviation = np.where(low < high, features.std(0), 1.0)
        return cls(low, high, features.mean(0), deviation)

    def standardise(
        self, features: Float64[np.ndarray, "example feature"]
    ) -> Float64[np.ndarray, "example feature"]:
        """Return features of mean 0 and deviation 1 where the box was made; NaN stays NaN.

        What lies outside the box is moved to its edge, so that nothing is extrapolated: a gap
        of three epochs, where only such were learned from, says nothing about one of two.
        """
        return (np.clip(features, self.low, self.high) - self.mean) / self.deviation


def look_back(
    values: Float64[np.ndarray, "lag example"],
    epochs: Int32[np.ndarray, "lag example"],
    epoch: int | Int32[np.ndarray, " example"],
) -> Float64[np.ndarray, "example feature"]:
    """Return what examples' last values tell of an epoch.

    Args:
        values: the last values of each, newest first; NaN where there are fewer.
        epochs: in which they were taken; negative where there are fewer.
        epoch: the one to look back from, of each or of all.

    Returns:
        The last value, how each differed from the one before, the epochs gone by since the
        last, and those between two. NaN where there are fewer.
    """
    times = np.where(epochs < 0, np.nan, epochs)
    gaps = (epoch - times[:1], -np.diff(times, axis=0))
    return np.concatenate((values[:1], -np.diff(values, axis=0), *gaps)).T


def pick_pairs(
    scores: Float[np.ndarray, "lag example"], depth: int, points: int
) -> Int64[np.ndarray, " pair"]:
    """Return examples to learn from: the newest score of each is told by those before it.

    They are evenly spread over the ranks of the score before the newest, so that high and low
    ones are there in proportion, and no chance is involved.

    Args:
        scores: the last scores, newest first; NaN where there are fewer.
        depth: scores that an example needs.
        points: how many examples are picked at most.

    Returns:
        Their indices, by ascending score before the newest; none where they are too few.
    """
    complete = np.isfinite(scores[:depth]).all(axis=0)
    pairs = np.flatnonzero(complete)
    if len(scores) < depth or len(pairs) < FEWEST:
        return pairs[:0]
    pairs = pairs[np.argsort(scores[1, pairs], kind="stable")]
    count = int(min(points, len(pairs)))
    return pairs[(2 * np.arange(count) + 1) * len(pairs) // (2 * count)]


def in_chunks(examples: int) -> Iterator[slice]:
    """Yield all examples piece by piece, so that what is computed of one stays small."""
    for start in range(0, examples, _CHUNK):
        yield slice(start, start + _CHUNK)


def check_installed(predictor: str) -> None:
    """Refuse a predictor that scikit-learn is missing for, without importing it.

    Raises:
        ConfigurationError: if it is not installed.
    """
    if importlib.util.find_spec("sklearn") is None:
        raise ConfigurationError(
            f"{predictor}() learns with scikit-learn, which is not installed; write "
            "pip install 'selective-backprop[predict]'"
        )
