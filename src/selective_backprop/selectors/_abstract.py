"""The interface of selectors, which choose the candidates to train on."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from selective_backprop._core.options import check_rate, check_whole, settle
from selective_backprop._core.types import Scores
from selective_backprop._memory.history import History
from selective_backprop._sampling.context import Context, Running, Unchanging
from selective_backprop._sampling.draws import Choice, Draw


class RunningSelector(Running):
    """A selector at work in one training run; `AbstractSelector.start` returns it."""

    @abstractmethod
    def select(self, scores: Scores, history: History, generator: torch.Generator) -> Choice:
        """Choose which candidates of one window, the group that one call chooses from, to train on.

        Args:
            scores: one score per candidate, never NaN. All are 0 if the strategy has no scorer. A
                candidate without a known score has +inf, one without a target another one's score.
            history: recent scores, including those of these candidates. If the strategy selects by
                remembered scores, the history holds the finite scores of all examples instead, or
                2^20 of them, evenly spaced by rank.
            generator: the source of all random numbers, on the scores' device.

        With `Terms(features=True)`, a fourth argument is passed: features `[candidate, feature]`.

        Returns:
            The chosen candidates' positions in `scores`, ascending, and their weights. No position
            comes twice, unless the selector draws with replacement. With `Draw.EXACT`, there are
            `context.quota(len(scores))` positions, where `context` is what `start` was given.
        """


class Paced(ABC):
    """A second base class, beside `RunningSelector`, for a rule that changes during training."""

    @abstractmethod
    def begin(self, progress: float) -> None:
        """Adapt the rule at the beginning of an epoch, to the fraction of training that is done."""


@dataclass(frozen=True)
class Terms:
    """What a selector needs, and what it promises.

    Attributes:
        rate: the share of the candidates that is kept, in (0, 1].
        draw: with `Draw.EXACT`, a fixed number of rows is kept of each window, which is a group of
            `batch_size / rate` candidates. With `Draw.BERNOULLI`, whether a row is kept must not
            depend on the other rows of its window. A window is then one or several batches of your
            data loader, or up to 2^17 examples if the strategy selects by remembered scores.
        history: number of recent scores that candidates are compared with; 0 if none are needed.
        history_type: the class that holds them. Remembered scores, which have no order in time, are
            held by a plain `History` instead.
        needs_scores: whether it chooses by score. If not, it can choose before examples are loaded.
        keeps_everything: whether every candidate is kept, so that batches pass through unchanged.
        reweights: whether rows have weights, by which the training loop must multiply the losses.
        promises: whether a share of about `rate` is kept whatever the scores are, as long as no two
            are equal. If not, `rate` is a typical share.
        paced: whether the rule changes during training. If so, the length of training must be
            known, and the running selector must also inherit from `Paced`.
        confidence: whether `exp(-score)` is taken for the probability of the true class.
        features: whether it chooses by features, too, which the scorer then returns.
    """

    rate: float
    draw: Draw = Draw.EXACT
    history: int = 0
    needs_scores: bool = True
    keeps_everything: bool = False
    reweights: bool = False
    promises: bool = True
    paced: bool = False
    confidence: bool = False
    history_type: type[History] = History
    features: bool = False

    def __post_init__(self) -> None:
        settle(self, check_rate, "rate")
        settle(self, check_whole, "history", least=0)


class AbstractSelector(ABC):
    """The settings of a selector. They never change; each training run calls `start` once."""

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """What the selector needs, and what it promises."""

    @abstractmethod
    def start(self, context: Context) -> RunningSelector:
        """Return a new `RunningSelector` for the training run that `context` describes."""


@dataclass(frozen=True)
class Stateless(Unchanging, RunningSelector):
    """A running selector that remembers nothing: `rule` is a function for its `select`."""

    rule: Callable[..., Choice]

    def select(
        self, scores: Scores, history: History, generator: torch.Generator, *features: Tensor
    ) -> Choice:
        return self.rule(scores, history, generator, *features)
