"""Controls to compare with, and selection by the simplest rules."""

from selective_backprop._sampling.draws import Draw, DrawName
from selective_backprop._sampling.schedule import Schedule
from selective_backprop._sampling.subset import Subset
from selective_backprop.scorers import AbstractScorer, Forward
from selective_backprop.selectors import Bottom, Everything, Top, Uniform
from selective_backprop.strategies._strategy import Strategy


def traditional() -> Strategy:
    """Train on everything, without selection: the control of every comparison."""
    return Strategy("traditional", None, Everything())


def random_backprop(
    rate: float, *, draw: Draw | DrawName = Draw.EXACT, schedule: Schedule = Schedule()
) -> Strategy:
    """Train on a random share of the examples; skipped examples are not even loaded.

    Args:
        rate: share of the examples to train on, in (0, 1].
        draw: `"exact"` takes a fixed number of each window, `"bernoulli"` tosses a coin per
            example.
        schedule: when to select; all the time by default.

    Raises:
        ConfigurationError: if the rate is out of range or there is no such draw.
    """
    return Strategy("random-backprop", None, Uniform(rate, draw), schedule)


def random_scored(
    rate: float, *, draw: Draw | DrawName = Draw.EXACT, schedule: Schedule = Schedule()
) -> Strategy:
    """Score every example, then ignore the scores: a control that pays for them without a gain.

    Args:
        rate: share of the examples to train on, in (0, 1].
        draw: as for `random_backprop`.
        schedule: when to select; all the time by default.

    Raises:
        ConfigurationError: if the rate is out of range or there is no such draw.
    """
    return Strategy("random-scored", Forward(), Uniform(rate, draw), schedule)


def random_k(
    rate: float, *, scorer: AbstractScorer = Forward(), schedule: Schedule = Schedule()
) -> Strategy:
    """Score every example, and train on a fixed number of each window at random.

    This is `random_scored` with exact draws, as the control of `top_k` and `low_k`.

    Args:
        rate: share of each window to train on, in (0, 1].
        scorer: how examples are scored; the scores are ignored.
        schedule: when to select; all the time by default.

    Raises:
        ConfigurationError: if the rate is out of range.
    """
    return Strategy("random-k", scorer, Uniform(rate), schedule)


def top_k(
    rate: float, *, scorer: AbstractScorer = Forward(), schedule: Schedule = Schedule()
) -> Strategy:
    """Train on the share of each window that scores highest.

    Args:
        rate: share of each window to train on, in (0, 1].
        scorer: how examples are scored.
        schedule: when to select; all the time by default.

    Raises:
        ConfigurationError: if the rate is out of range.

    Source:
        Kawaguchi and Lu 2020, arXiv:1907.04371 (ordered SGD).
    """
    return Strategy("top-k", scorer, Top(rate), schedule)


def low_k(
    rate: float, *, scorer: AbstractScorer = Forward(), schedule: Schedule = Schedule()
) -> Strategy:
    """Train on the share of each window that scores lowest.

    Args:
        rate: share of each window to train on, in (0, 1].
        scorer: how examples are scored.
        schedule: when to select; all the time by default.

    Raises:
        ConfigurationError: if the rate is out of range.

    Source:
        Shah et al. 2020, arXiv:2001.03316 (min-loss SGD), against outliers.
    """
    return Strategy("low-k", scorer, Bottom(rate), schedule)


def pruned(subset: Subset) -> Strategy:
    """Train on a part of the data set, chosen once, as if the rest did not exist.

    Args:
        subset: the part, such as `prune(el2n_scores(...), keep=0.5)` returns.

    Raises:
        ConfigurationError: if it is not a `Subset`.

    Source:
        Paul et al. 2021, arXiv:2107.07075.
    """
    return Strategy("pruned", None, Everything()).within(subset)
