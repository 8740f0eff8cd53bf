"""Measures that look at classes: balanced error, error on data as they come, rare classes.

Data with two classes have two further measures, of probabilities and of ranking. Each measure takes
the evaluations of one arm at one length. It returns a number for each seed: the mean over the last
tenth of the run's evaluations, or NaN if the record lacks what the measure needs.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from selective_backprop_lab.analysis.queries import BY_SEED, by_seed, final, last_tenth

RAREST = 3  # classes


def is_skewed(evaluations: pd.DataFrame) -> bool:
    """Whether the classes of a run's training data were made unequal on purpose."""
    return any(config.get("composition.skew") for config in evaluations.config)


def is_binary(evaluations: pd.DataFrame) -> bool:
    """Whether a run's data have two classes."""
    return bool(evaluations.ranking.notna().any())


def balanced_error(runs: pd.DataFrame) -> pd.Series:
    """Return what the error, in percent, would be if all classes were equally frequent."""
    return _by_class(runs, lambda errors, shares: _mean(errors, None))


def error_as_it_comes(runs: pd.DataFrame) -> pd.Series:
    """Return what the error, in percent, would be with the training data's shares of classes."""
    return _by_class(runs, _mean)


def _mean(errors: np.ndarray, weights: np.ndarray | None) -> float:
    known = np.isfinite(errors) if weights is None else np.isfinite(errors) & (weights > 0)
    weights = None if weights is None else weights[known]
    return float(np.average(errors[known], weights=weights)) if known.any() else math.nan


def macro_recall(runs: pd.DataFrame) -> pd.Series:
    """Return the recall in percent (the share that is recognised), as a mean over classes."""
    return 100.0 - balanced_error(runs)


def rare_recall(runs: pd.DataFrame) -> pd.Series:
    """Return the mean recall, in percent, of the three classes that are rarest in training."""

    def recall(errors: np.ndarray, shares: np.ndarray) -> float:
        rarest = np.argsort(shares, kind="stable")[:RAREST]
        return 100.0 - float(np.mean(errors[rarest]))

    return _by_class(runs, recall)


def area_under_curve(runs: pd.DataFrame) -> pd.Series:
    """Return how often, in percent, the second class's examples rank above the first's."""
    return 100.0 * last_tenth(runs).groupby(BY_SEED).ranking.mean()


def _by_class(runs: pd.DataFrame, measure: Callable[[np.ndarray, np.ndarray], float]) -> pd.Series:
    def of_seed(own: pd.DataFrame) -> float:
        shares = np.asarray(own.meters.iloc[0].get("class_shares", [math.nan]))
        known = [errors for errors in own.class_errors if isinstance(errors, tuple)]
        errors = np.mean(known, axis=0) if known else np.full(len(shares), math.nan)
        return measure(errors, shares)

    return by_seed(last_tenth(runs), of_seed)


CLASS_MEASURES: Mapping[str, Callable[[pd.DataFrame], pd.Series]] = {
    "as it\ncomes %": error_as_it_comes,
    "macro-\nrecall %": macro_recall,
    "rarest\nthree %": rare_recall,
}
"""The measures that a table shows if classes are skewed, by their headings."""

BINARY_MEASURES: Mapping[str, Callable[[pd.DataFrame], pd.Series]] = {
    "log-loss\n× 100": lambda runs: 100.0 * final(runs, "test_loss"),
    "area under\ncurve %": area_under_curve,
}
"""The measures that a table shows if there are two classes, by their headings."""
