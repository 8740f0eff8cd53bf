"""A strategy has three parts: how examples are scored, which are kept, and when."""

from dataclasses import dataclass, replace
from functools import cached_property

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance
from selective_backprop._sampling.schedule import Schedule
from selective_backprop._sampling.subset import Subset
from selective_backprop.scorers import AbstractScorer, Needs
from selective_backprop.selectors import AbstractSelector

SUBSET = "sb.Subset(torch.tensor(indices), len(data)) or sb.prune(scores, keep=0.5)"


@dataclass(frozen=True)
class Strategy:
    """How examples are scored, which examples are kept, and when to select.

    Args:
        name: the strategy's name in figures, tables and messages.
        scorer: gives each example a score. None if the selector needs no scores; then examples are
            selected before they are loaded.
        selector: chooses examples by their scores.
        schedule: when to select; by default always.
        subset: the part of the data set to use, during warm-up too; None for the whole data set.

    Raises:
        ConfigurationError: if an argument has the wrong type, or the parts do not fit together.
    """

    name: str
    scorer: AbstractScorer | None
    selector: AbstractSelector
    schedule: Schedule = Schedule()
    subset: Subset | None = None

    def __post_init__(self) -> None:
        check_instance("scorer", self.scorer, AbstractScorer, "Forward()", optional=True)
        check_instance("selector", self.selector, AbstractSelector, "Percentile(beta=2)")
        check_instance("schedule", self.schedule, Schedule, "Schedule(warmup_epochs=1)")
        check_instance("subset", self.subset, Subset, SUBSET, optional=True)
        if self.scorer is None and self.selector.terms.needs_scores:
            raise ConfigurationError(
                f"{self.selector!r} chooses by score, so it needs a scorer, such as Forward()"
            )
        remembers = self.scorer is not None and self.scorer.needs.remembers
        if remembers and self.selector.terms.keeps_everything:
            raise ConfigurationError(
                f"{self.scorer!r} remembers scores, but {self.selector!r} keeps everything and "
                "ignores them; use a selector such as Percentile(beta=2)"
            )
        gated = self.schedule.gate is not None
        if gated and (self.scorer is None or not self.scorer.needs.passes):
            raise ConfigurationError(
                f"{self.schedule.gate!r} needs fresh scores to decide when to select, but "
                f"{self.scorer!r} computes none; use a scorer such as Forward()"
            )

    @cached_property
    def needs(self) -> Needs | None:
        """What the scorer needs; None if there is no scorer."""
        return None if self.scorer is None else self.scorer.needs

    @property
    def scores(self) -> bool:
        """Whether the strategy ever scores examples by a forward pass."""
        needs = self.needs
        return needs is not None and (needs.passes or needs.rescores)

    def within(self, subset: Subset) -> "Strategy":
        """Return a copy that uses only a part of the data set, such as `prune(scores, keep=0.5)`.

        Raises:
            ConfigurationError: if `subset` is not a `Subset`.
        """
        check_instance("subset", subset, Subset, SUBSET)
        return replace(self, subset=subset)
