"""A strategy: how examples are scored, which are kept, and when; and checks that it fits."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import nn

from selective_backprop._core.errors import ConfigurationError, refuse
from selective_backprop._core.options import check_instance
from selective_backprop._distributed.group import Group
from selective_backprop._sampling.draws import Draw
from selective_backprop._sampling.schedule import Schedule
from selective_backprop._sampling.subset import Subset
from selective_backprop.scorers import AbstractScorer, Needs
from selective_backprop.scorers._abstract import scorer_parts
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
        needs, terms = self.needs or Needs(passes=False), self.selector.terms
        gated = self.schedule.gate is not None
        refuse(
            {
                f"{self.selector!r} chooses by score, so it needs a scorer, such as Forward()": (
                    self.scorer is None and terms.needs_scores
                ),
                f"{self.scorer!r} remembers scores, but {self.selector!r} keeps everything and "
                "ignores them; use a selector such as Percentile(beta=2)": (
                    needs.remembers and terms.keeps_everything
                ),
                f"{self.selector!r} chooses by features, but {self.scorer!r} does not return them "
                "for all candidates; use a scorer with Needs(features=True) that scores each "
                "anew": terms.features and (needs.remembers or not needs.features),
                f"{self.schedule.gate!r} needs fresh scores to decide when to select, but "
                f"{self.scorer!r} computes none; use a scorer such as Forward()": (
                    gated and not needs.passes
                ),
            }
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
        """Return a copy that uses only a part of the data set, as `prune(…)` returns."""
        check_instance("subset", subset, Subset, SUBSET)
        return replace(self, subset=subset)


def check_strategy(strategy: Any) -> Strategy:
    """Return the strategy; refuse anything else, such as `auto` without its parentheses."""
    if isinstance(strategy, Strategy):
        return strategy
    named = isinstance(strategy, str)
    hint = "sb.auto()" if named else "Strategy(name, scorer, selector, schedule)"
    if callable(strategy):
        hint = f"{getattr(strategy, '__name__', 'it')}(...), called"
    raise ConfigurationError(f"a strategy is needed, got {strategy!r}; write {hint}")


def exactly(strategy: Strategy) -> str:
    """Return what to write so that of each window as many rows are drawn."""
    return 'pass it draw="exact"' if hasattr(strategy.selector, "draw") else "use top_k(rate=1 / 3)"


def check_loss(strategy: Strategy, name: str | None) -> None:
    if name is not None and strategy.selector.terms.confidence:
        ranks = "recorded_sb" if (strategy.needs or Needs()).remembers else "selective_backprop"
        raise ConfigurationError(
            f"{strategy.name} takes exp(-loss) as the probability of the true class, and {name} is "
            f"no cross-entropy. Use a strategy that only ranks losses: {ranks}(rate=1 / 2)"
        )


def has_collective_forward(
    strategy: Strategy, model: Any, skips_rows: bool, ranks: Group, measured: bool = False
) -> bool:
    """Return whether all ranks must score equally many candidates between two training steps.

    They must if the scoring pass waits for every rank. A strategy that cannot ensure it is refused.
    `measured` says that each rank asks a function of the user's how far training is.
    """
    needs = strategy.needs
    if ranks.size == 1 or needs is None or not strategy.scores or not needs.model:
        return False
    why = _waits_for_ranks(model, strategy.scorer)
    if why is None:
        return False
    terms, schedule = strategy.selector.terms, strategy.schedule
    varies, gated = terms.draw is not Draw.EXACT, schedule.gate is not None
    asks = measured and (schedule.uses_fractions or terms.paced)
    refusals = {
        f"draws a number of rows that varies from rank to rank; {exactly(strategy)}": varies,
        "opens and shuts its gate on each rank by itself; use a schedule without a gate": gated,
        "scores only examples without a remembered score; use a strategy that scores all or "
        "none": needs.remembers,
        "leaves out rows because of nonfinite='skip'; use 'raise' or 'select'": skips_rows,
        "selects by progress=, which may differ from rank to rank; pass epochs= instead": asks,
        "does not score by one forward pass of the whole model (Needs(plain_forward=True)); use "
        "Forward()": not needs.plain_forward,
    }
    start = f"{why}, so all ranks must score equally many batches. {strategy.name}"
    refuse({f"{start} {what}.": applies for what, applies in refusals.items()})
    return True


def _waits_for_ranks(model: Any, scorer: object) -> str | None:
    if not isinstance(model, nn.Module):
        return None
    # Known by names, since importing FSDP takes seconds. ZeRO-3 gives parameters a ds_id.
    names = {kind.__name__ for part in model.modules() for kind in type(part).__mro__}
    zero = any(hasattr(each, "ds_id") for each in model.parameters())
    if zero or names & {"FSDPModule", "FullyShardedDataParallel"}:
        engine = "ZeRO-3" if zero else "FSDP"
        return f"{engine} gathers the model's parameters from all ranks in each forward pass"
    # In eval mode SyncBatchNorm uses its running statistics and does not wait.
    synced = any(isinstance(part, nn.SyncBatchNorm) for part in model.modules())
    if synced and any(getattr(part, "training", False) for part in scorer_parts(scorer)):
        return "SyncBatchNorm in training mode gathers statistics from all ranks"
    return None
