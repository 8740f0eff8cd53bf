"""Performance profiles: one curve for each strategy that ranks it over many problems."""

import numpy as np

from selective_backprop_lab.shapes import Float


def performance_profile(
    errors: Float[np.ndarray, "problem arm"], factors: Float[np.ndarray, " factor"]
) -> Float[np.ndarray, "arm factor"]:
    """Return the share of problems on which an arm's error is at most a factor of the lowest.

    At a factor of 1 that is how often an arm is best, ties included; the sooner a curve is at 1,
    the closer the arm is to the best wherever it is not.

    Args:
        errors: at least 0, of any unit that all arms of a problem share; NaN where an arm was not
            run or diverged, which counts as worse than any factor.
        factors: at least 1.

    Returns:
        Shares in [0, 1]; NaN for all without problems. Problems that no arm was run on count too.

    Source:
        Dolan and Moré 2002, Benchmarking optimization software with performance profiles,
        Mathematical Programming 91, equation 2.
    """
    if not len(errors):
        return np.full((errors.shape[1], len(factors)), np.nan)
    lowest = np.fmin.reduce(errors, axis=1)
    limits = lowest[:, None, None] * factors * (1 + 1e-9)
    return (errors[:, :, None] <= limits).mean(axis=0)
