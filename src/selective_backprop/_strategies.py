"""The famous methods, each a scorer, a selector and a schedule.

traditional          -           Everything()         -
random_backprop      -           Uniform(rate)        -
random_scored        Forward()   Uniform(rate)        -
selective_backprop   Forward()   Percentile(beta)     first epoch everything
"""

from dataclasses import dataclass

from selective_backprop._errors import ConfigurationError
from selective_backprop._schedule import Schedule
from selective_backprop._selection import Draw, DrawName
from selective_backprop.scorers import AbstractScorer, Forward
from selective_backprop.selectors import (
    AbstractSelector,
    Everything,
    Percentile,
    Uniform,
    check_rate,
)


@dataclass(frozen=True)
class Strategy:
    """How examples are scored, which of them are kept, and when.

    Args:
        name: what figures, tables and messages call it.
        scorer: gives one number per candidate; None where the selector needs none, so that
            examples are selected before they are loaded.
        selector: chooses candidates by their scores.
        schedule: when selection acts.

    Raises:
        ConfigurationError: if the parts are no scorer, selector and schedule.
    """

    name: str
    scorer: AbstractScorer | None
    selector: AbstractSelector
    schedule: Schedule = Schedule()

    def __post_init__(self) -> None:
        if self.scorer is not None and not isinstance(self.scorer, AbstractScorer):
            raise ConfigurationError(f"scorer={self.scorer!r} is no scorer, such as Forward()")
        if not isinstance(self.selector, AbstractSelector):
            raise ConfigurationError(
                f"selector={self.selector!r} is no selector, such as Percentile(beta=2)"
            )
        if not isinstance(self.schedule, Schedule):
            raise ConfigurationError(
                f"schedule={self.schedule!r} is no schedule, such as Schedule(warmup_epochs=1)"
            )
        if self.scorer is None and self.selector.terms.needs_scores:
            raise ConfigurationError(
                f"{self.selector!r} chooses by score and needs a scorer, such as Forward()"
            )


def traditional() -> Strategy:
    """Train on everything, as if there were no selection: the control of every comparison."""
    return Strategy("traditional", None, Everything())


def random_backprop(
    rate: float, *, draw: Draw | DrawName = Draw.EXACT, schedule: Schedule = Schedule()
) -> Strategy:
    """Train on a random share of the examples; what is skipped is never even loaded.

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
    """Score every example, then ignore the scores: a control that pays and does not profit.

    Args:
        rate: share of the examples to train on, in (0, 1].
        draw: as for `random_backprop`.
        schedule: when to select; all the time by default.

    Raises:
        ConfigurationError: if the rate is out of range or there is no such draw.
    """
    return Strategy("random-scored", Forward(), Uniform(rate, draw), schedule)


def selective_backprop(
    rate: float | None = None,
    *,
    beta: float | None = None,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    warmup_epochs: int = 1,
    start: float = 0.0,
    end: float = 1.0,
    plain_every: int | None = None,
    scorer: AbstractScorer = Forward(),
) -> Strategy:
    """Score every example with a forward pass, and train on those whose loss ranks high.

    An example whose loss exceeds a share `q` of recent losses is trained on with probability
    `q ** beta`, a share `rate = 1 / (beta + 1)` of all. Per example that costs a forward pass
    and `rate` of a training step: with a backward pass worth two forwards, 2 instead of 3
    forwards at a rate of a third, if the examples left out were not needed.

    Args:
        rate: share of the examples to train on, in (0, 1]; give this or `beta`.
        beta: selectivity, at least 0; give this or `rate`.
        draw: `"exact"` takes a full batch from each window of candidates; `"bernoulli"` tosses
            a coin per candidate, as the paper does.
        history: how many recent losses are ranked against, R.
        warmup_epochs: epochs at the beginning that train on everything.
        start: fraction of training before which everything is trained on.
        end: fraction of training from which everything is trained on again.
        plain_every: one training batch in this many is unselective; None for no such batch.
        scorer: how examples are scored.

    Raises:
        ConfigurationError: if both or neither of `rate` and `beta` are given, or a value is out
            of its range.

    Source:
        Jiang et al. 2019, arXiv:1910.00762.
    """
    if (rate is None) == (beta is None):
        given = "neither" if rate is None else "both"
        raise ConfigurationError(
            f"{given} of rate and beta given; they are one knob, rate = 1 / (beta + 1), so give "
            "one: rate=1/3 and beta=2 both keep a third"
        )
    if beta is None:
        beta = 1.0 / check_rate(rate or 0.0) - 1.0
    return Strategy(
        "selective-backprop",
        scorer,
        Percentile(beta, draw, history),
        Schedule(warmup_epochs, start, end, plain_every),
    )
