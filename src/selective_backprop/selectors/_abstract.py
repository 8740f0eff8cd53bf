"""What a selector is: a rule for which candidates to train on."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from selective_backprop._context import Context
from selective_backprop._errors import ConfigurationError
from selective_backprop._history import History
from selective_backprop._selection import Choice, Draw
from selective_backprop._types import Scores


class RunningSelector(ABC):
    """A selector at work in one training."""

    @abstractmethod
    def select(self, scores: Scores, history: History, generator: torch.Generator) -> Choice:
        """Choose rows of one window of candidates.

        Args:
            scores: one finite score per candidate; zeros where the strategy has no scorer.
            history: recent scores, these candidates' already among them.
            generator: the only source of randomness, on the scores' device.

        Returns:
            Row positions, ascending, at most one per candidate unless drawn with replacement,
            and their weights. An exact selector returns `context.quota(candidates)` rows.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what the selector must remember to go on later."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""


@dataclass(frozen=True)
class Terms:
    """What a selector needs and promises.

    Attributes:
        rate: the share of candidates that is kept, in (0, 1].
        draw: whether a window yields a fixed number of rows.
        history: how many recent scores the selector ranks against; 0 if it ranks none.
        needs_scores: whether it chooses by score; if not, it can choose before loading.
        keeps_everything: whether candidate batches pass through unchanged.
        reweights: whether rows carry weights that the loss must use.
    """

    rate: float
    draw: Draw = Draw.EXACT
    history: int = 0
    needs_scores: bool = True
    keeps_everything: bool = False
    reweights: bool = False


class AbstractSelector(ABC):
    """A selector's specification: immutable, reusable, started once per training."""

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """What the selector needs and promises."""

    @abstractmethod
    def start(self, context: Context) -> RunningSelector:
        """Return the selector at work in the training that `context` describes."""


@dataclass(frozen=True)
class Stateless(RunningSelector):
    """A running selector that remembers nothing: a rule and its settings.

    Args:
        rule: `(scores, history, generator) -> Choice`.
    """

    rule: Callable[[Scores, History, torch.Generator], Choice]

    def select(self, scores: Scores, history: History, generator: torch.Generator) -> Choice:
        """Apply the rule."""
        return self.rule(scores, history, generator)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: there is nothing to remember."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from an empty state."""


def check_rate(rate: float) -> float:
    """Return the rate if it is in (0, 1].

    Raises:
        ConfigurationError: if it is not.
    """
    if not 0.0 < rate <= 1.0:
        raise ConfigurationError(
            f"rate={rate}: the share of candidates to keep must be in (0, 1]; 1/3 keeps a third"
        )
    return float(rate)


def check_draw(draw: Draw | str) -> Draw:
    """Return the draw that a name stands for.

    Raises:
        ConfigurationError: if there is no such draw.
    """
    try:
        return Draw(draw)
    except ValueError:
        raise ConfigurationError(
            f"draw={draw!r}: there are {' and '.join(repr(str(known)) for known in Draw)}"
        ) from None
