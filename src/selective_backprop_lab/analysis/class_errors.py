"""Measures that tell classes apart: balanced error, error on data as they come, rare classes.

Of two classes there are two more, which judge probabilities and order instead of decisions. Each
measure is the mean of the last tenth of a run's evaluations, as the final error is, and NaN for a
run whose record does not hold what it needs.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from selective_backprop_lab.analysis.statistics import last_tenth
from selective_backprop_lab.records.schema import Run

RAREST = 3  # classes


def is_skewed(run: Run) -> bool:
    """Whether a run's training data had their classes skewed on purpose."""
    return bool((run.header.config.get("composition") or {}).get("skew"))


def balanced_error(run: Run) -> float:
    """Return the error, in percent, where all classes are equally frequent."""
    errors = _class_errors(run)
    known = errors[np.isfinite(errors)]
    return float(np.mean(known)) if len(known) else math.nan


def error_as_it_comes(run: Run) -> float:
    """Return the error, in percent, where classes are as frequent as in the training data."""
    errors, shares = _class_errors(run), _shares(run)
    known = np.isfinite(errors) & (shares > 0)
    return float(np.average(errors[known], weights=shares[known])) if known.any() else math.nan


def macro_recall(run: Run) -> float:
    """Return the mean over classes of the share, in percent, that is recognised."""
    return 100.0 - balanced_error(run)


def rare_recall(run: Run) -> float:
    """Return the share, in percent, that is recognised of the rarest three classes in training.

    It is the mean over these classes; of classes as rare, those of the lowest labels count.
    """
    rarest = np.argsort(_shares(run), kind="stable")[:RAREST]
    return 100.0 - float(np.mean(_class_errors(run)[rarest]))


def is_binary(run: Run) -> bool:
    """Whether a run's data have two classes."""
    return any(point.ranking is not None for point in run.points)


def log_loss(run: Run) -> float:
    """Return the mean cross-entropy on the test set, in nats."""
    return float(np.mean([point.test_loss for point in last_tenth(run)]))


def area_under_curve(run: Run) -> float:
    """Return how often, in percent, the second class's examples rank above those of the first."""
    known = [point.ranking for point in last_tenth(run) if point.ranking is not None]
    return 100.0 * float(np.mean(known)) if known else math.nan


CLASS_MEASURES: Mapping[str, Callable[[Run], float]] = {
    "as it\ncomes %": error_as_it_comes,
    "macro-\nrecall %": macro_recall,
    "rarest\nthree %": rare_recall,
}
"""The measures that a table shows where classes are skewed, by their headings."""

BINARY_MEASURES: Mapping[str, Callable[[Run], float]] = {
    "log-loss\n× 100": lambda run: 100.0 * log_loss(run),
    "area under\ncurve %": area_under_curve,
}
"""The measures that a table shows where there are two classes, by their headings."""


def _class_errors(run: Run) -> np.ndarray:
    """Return each class's final error in percent, one NaN where none was recorded."""
    found = [point.class_errors for point in last_tenth(run) if point.class_errors is not None]
    return np.mean(found, axis=0) if found else np.full(len(_shares(run)), math.nan)


def _shares(run: Run) -> np.ndarray:
    """Return each class's share of the training data, one NaN where none was recorded."""
    return np.asarray(run.meters.get("class_shares", [math.nan]))
