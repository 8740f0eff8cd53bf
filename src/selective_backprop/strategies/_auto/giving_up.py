"""Two rules for which examples to give up, because their labels are probably wrong.

An example *recovers* if its loss was above ln 2 and its next loss is not. The higher a loss, the
fewer examples recover from it, and mislabelled examples hardly ever do: `given_up` looks at this,
which takes some epochs to see. `highest` acts from the second epoch on: it gives up as many
examples as labels were found wrong in the first epoch, those with the highest last losses.
"""

import numpy as np

from selective_backprop._core.types import Float32, Int64

# The cross-entropy of a target of probability 1/2. Up to this loss, no other class is likelier.
EVEN = np.float32(np.log(2.0))
# Limits are read off so many examples at most. Of 10 million examples, reading and sorting these
# takes 0.2 s, and twice as many 0.45 s. They give a share of all examples to within 0.0007.
SAMPLED = 2**19
Losses = Float32[np.ndarray, " example"]
Classes = Float32[np.ndarray, " example"]
Rows = Int64[np.ndarray, " row"]


def sample(examples: int) -> slice | Rows:
    """Return all examples, or some at random places, since data may be sorted."""
    if examples <= SAMPLED:
        return slice(None)
    return np.random.default_rng(0).integers(examples, size=SAMPLED)


def given_up(losses: Float32[np.ndarray, "lag example"], classes: Classes, share: float) -> Rows:
    """Return the examples with losses so high that less than `share` of such examples recovers.

    All of an example's last losses must reach the lowest such limit. They are newest first, at
    least two rows; missing losses are NaN. A class loses no example before half of it is learned.
    Unknown classes are NaN, and count as one class.
    """
    limit = _limit(losses[:, sample(losses.shape[1])], share)
    if limit == np.inf:
        return np.empty(0, np.int64)
    lost = np.flatnonzero(np.minimum.reduce(losses) >= limit)  # NaN does not reach it
    return lost[_half_learned(losses[0], classes, lost)]


def _limit(losses: Float32[np.ndarray, "lag example"], share: float) -> float:
    """Return the lowest loss at or above which too few recover; infinity if there is none."""
    known = np.isfinite(np.maximum.reduce(losses))
    # Lag 0 is the newest loss, lag 1 the one before: did a high one become low?
    low, before = losses[0, known] <= EVEN, losses[1, known]
    # Before half of the examples are learned, a high loss may only mean that the model is new.
    if 2 * np.count_nonzero(low) < len(low):
        return np.inf
    high = before > EVEN
    ascending, back = np.sort(before[high]), np.sort(before[high & low])
    # For each loss, how many are as high or higher. The first of equal losses counts them all, and
    # `argmax` finds the first.
    number = np.arange(len(ascending), 0, -1)
    recovered = len(back) - np.searchsorted(back, ascending)
    # One more recovery is assumed, since a share of few examples says little. With 0.05, no example
    # is given up before twenty have been seen without a recovery.
    hopeless = (recovered + 1) / (number + 1) < share
    return float(ascending[np.argmax(hopeless)]) if hopeless.any() else np.inf


def highest(newest: Losses, classes: Classes, share: float) -> Rows:
    """Return the examples with the highest last losses: `share` of the examples that have one.

    Only losses above ln 2 count. A class loses no example before half of its right labels are
    learned; the share of wrong labels is assumed to be the same in each class. Missing losses and
    unknown classes are NaN.
    """
    some = newest[sample(len(newest))]
    some = some[~np.isnan(some)]
    limit = np.quantile(some, 1.0 - share) if len(some) else np.inf
    lost = np.flatnonzero(newest > max(EVEN, limit))
    return lost[_half_learned(newest, classes, lost, 1.0 - share)]


def _half_learned(newest: Losses, classes: Classes, lost: Rows, right: float = 1.0) -> np.ndarray:
    """Return which `lost` examples are of a class with at least half of its right labels learned.

    `right` is the share of right labels, assumed to be the same in each class.
    """
    first, last = (np.nan_to_num(f.reduce(classes)) for f in (np.fmin, np.fmax))
    # If class numbers are far apart, the highest count as one class, so that counts stay few.
    most = min(int(last - first) + 1, len(classes))

    numbered = np.minimum(classes.astype(np.float64) - first + 1.0, most)
    places = np.nan_to_num(numbered).astype(np.int64)  # 0 is the class of those without any
    known = np.bincount(places[np.isfinite(newest)], minlength=most + 1)
    learned = np.bincount(places[newest <= EVEN], minlength=most + 1)
    return (2 * learned >= right * known)[places[lost]]
