"""How low losses rise: with visits, and in a class that more than half of the examples are of.

The rule is this project's own. A loss l stands for an error e = 1 - exp(-l), the probability of
all other classes. Below a half, e becomes (1/2) (2 e)^p: unchanged for p = 1, and 1/2 for p = 0,
which is the error of an example that is not learned. So selection fades as p falls from 1 to 0.
"""

from dataclasses import dataclass

import numpy as np

from selective_backprop._core.types import Float32
from selective_backprop.scorers._giving_up import EVEN, chunks

LOOKED_AT = 2**16  # a sample, in which a class of 51 % has more than half with 5 standard errors
Losses = Float32[np.ndarray, " example"]
Classes = Float32[np.ndarray, " example"]


@dataclass(frozen=True)
class Majority:
    """The class of more than half of the examples, and what errors on it are multiplied by."""

    of: np.float32
    factor: np.float32


def risen(
    losses: Losses, power: float, majority: Majority | None = None, classes: Classes | None = None
) -> Losses:
    """Return losses in which losses below ln 2 are raised, at most to ln 2.

    The ratio of an error to a half is raised to a power, in [0, 1], after errors on the majority
    are multiplied.
    """
    low = losses < EVEN
    # 2 e, in [0, 1). `expm1` keeps the digits of small losses; rounding, or a loss with smoothing
    # taken out, may be below 0, where the power would be NaN.
    ratios = -2.0 * np.expm1(-np.maximum(losses[low], 0.0))
    if majority is not None and classes is not None:
        ratios[classes[low] == majority.of] *= majority.factor
        np.minimum(ratios, 1.0, out=ratios)  # at most "not learned", which is e = 1/2
    found = losses.copy()
    found[low] = -np.log1p(-0.5 * ratios**power)  # the loss of the new error, -log(1 - e)
    return found


def find_majority(classes: Classes) -> Majority | None:
    """Return the class that more than half of the examples are of; None if there is none.

    Classes are NaN where they are not known, which does not count. Of many examples a class with
    hardly more than half may be missed.
    """
    some = classes
    if len(classes) > LOOKED_AT:  # at random places, since data may be in an order
        some = classes[np.random.default_rng(0).integers(len(classes), size=LOOKED_AT)]
    some = some[~np.isnan(some)]
    if not len(some):
        return None
    # A value that more than half of the numbers have is their median, found without a sort.
    middle = np.partition(some, len(some) // 2)[len(some) // 2]
    known = others = 0
    for part in chunks(len(classes)):
        found = np.count_nonzero(~np.isnan(classes[part]))
        known += found
        others += found - np.count_nonzero(classes[part] == middle)
    if 2 * others >= known:
        return None
    # A model that always guesses this class errs on the share of the others. The factor raises that
    # to a half; if there are no others, one is assumed, so that nothing is divided by 0.
    return Majority(middle, np.float32(0.5 * known / max(1, others)))
