"""Raise low losses: all of them as visits grow, and those of a majority class from the start.

The rule is this project's own. A loss l stands for an error e = 1 - exp(-l), the probability of all
wrong classes. An error below 1/2 becomes (1/2) (2 e)^p: unchanged for p = 1, and for p = 0 it is
1/2, the error of an example that is not learned. So selection fades as p falls from 1 to 0.
"""

from dataclasses import dataclass

import numpy as np

from selective_backprop._core.types import Float32
from selective_backprop.scorers._giving_up import EVEN, chunks

LOOKED_AT = 2**16  # a sample in which 51 % exceed a half by 5 standard errors
Losses = Float32[np.ndarray, " example"]
Classes = Float32[np.ndarray, " example"]


@dataclass(frozen=True)
class Majority:
    """The class of more than half of the examples, and the factor for errors on it."""

    of: np.float32
    factor: np.float32


def risen(
    losses: Losses, power: float, majority: Majority | None = None, classes: Classes | None = None
) -> Losses:
    """Return the losses, with those below ln 2 raised, at most to ln 2.

    Errors on the majority class are first multiplied by its factor. Then the ratio of each error to
    1/2 is raised to `power`, in [0, 1].
    """
    low = losses < EVEN
    # 2 e, in [0, 1). `expm1` keeps the digits of small losses. Rounding, or the removal of label
    # smoothing, may leave a loss below 0, where the power would be NaN.
    ratios = -2.0 * np.expm1(-np.maximum(losses[low], 0.0))
    if majority is not None and classes is not None:
        ratios[classes[low] == majority.of] *= majority.factor
        np.minimum(ratios, 1.0, out=ratios)  # at most "not learned", which is e = 1/2
    found = losses.copy()
    found[low] = -np.log1p(-0.5 * ratios**power)  # the loss of the new error, -log(1 - e)
    return found


def find_majority(classes: Classes) -> Majority | None:
    """Return the class of more than half of the examples, or None if there is no such class.

    Unknown classes are NaN and do not count. Among many examples, a class with hardly more than
    half of them may be missed.
    """
    some = classes
    if len(classes) > LOOKED_AT:  # at random places, since data may be sorted
        some = classes[np.random.default_rng(0).integers(len(classes), size=LOOKED_AT)]
    some = some[~np.isnan(some)]
    if not len(some):
        return None
    # If more than half of the numbers are equal, their median is this number, found without a sort.
    middle = np.partition(some, len(some) // 2)[len(some) // 2]
    known = others = 0
    for part in chunks(len(classes)):
        found = np.count_nonzero(~np.isnan(classes[part]))
        known += found
        others += found - np.count_nonzero(classes[part] == middle)
    if 2 * others >= known:
        return None
    # A model that always guesses this class is wrong on all other examples. The factor raises their
    # share to 1/2. At least one other example is assumed, so that nothing is divided by 0.
    return Majority(middle, np.float32(0.5 * known / max(1, others)))
