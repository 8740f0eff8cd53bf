"""Keep the candidates with the highest or the lowest scores of each window."""

from dataclasses import dataclass
from typing import final

from selective_backprop._core.options import check_rate, settle
from selective_backprop._core.types import Scores
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice
from selective_backprop.selectors._abstract import (
    AbstractSelector,
    RunningSelector,
    Stateless,
    Terms,
)


@final
@dataclass(frozen=True)
class Top(AbstractSelector):
    """Keep the share of each window that scores highest.

    Args:
        rate: share of each window to keep, in (0, 1].

    Raises:
        ConfigurationError: if the rate is out of range.
    """

    rate: float

    def __post_init__(self) -> None:
        settle(self, check_rate, "rate")

    @property
    def terms(self) -> Terms:
        """Keep the rate of each window, by score."""
        return Terms(self.rate)

    def start(self, context: Context) -> RunningSelector:
        """Return the running selector."""
        return Stateless(lambda scores, history, generator: _extremes(context, scores, True))


@final
@dataclass(frozen=True)
class Bottom(AbstractSelector):
    """Keep the share of each window that scores lowest.

    Args:
        rate: share of each window to keep, in (0, 1].

    Raises:
        ConfigurationError: if the rate is out of range.
    """

    rate: float

    def __post_init__(self) -> None:
        settle(self, check_rate, "rate")

    @property
    def terms(self) -> Terms:
        """Keep the rate of each window, by score."""
        return Terms(self.rate)

    def start(self, context: Context) -> RunningSelector:
        """Return the running selector."""
        return Stateless(lambda scores, history, generator: _extremes(context, scores, False))


def _extremes(context: Context, scores: Scores, largest: bool) -> Choice:
    count = context.quota(scores.shape[0])
    return Choice(scores.topk(count, largest=largest).indices.sort().values)
