"""Checks: does a strategy fit the loss, and forward passes that wait for all ranks?"""

import sys
from typing import Any

from torch import nn

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._distributed.group import Alone, Ranks
from selective_backprop._sampling.draws import Draw
from selective_backprop.scorers._abstract import scorer_parts
from selective_backprop.strategies._strategy import Strategy


def check_strategy(strategy: Any) -> Strategy:
    """Return the strategy; refuse anything else, such as `auto` without its parentheses."""
    if isinstance(strategy, Strategy):
        return strategy
    named = isinstance(strategy, str)
    hint = "sb.auto()" if named else "Strategy(name, scorer, selector, schedule)"
    if callable(strategy):
        hint = f"{getattr(strategy, '__name__', 'it')}(...), called"
    raise ConfigurationError(f"a strategy is needed, got {strategy!r}; write {hint}")


def check_loss(strategy: Strategy, name: str | None) -> None:
    """Refuse a loss that is known to be no cross-entropy, if the strategy would treat it as one.

    `name` is the name of such a loss; None stands for other losses.
    """
    if name is not None and strategy.selector.terms.confidence:
        raise ConfigurationError(
            f"{strategy.name} takes exp(-loss) as the probability of the true class, and {name} is "
            "no cross-entropy. Use a strategy that only ranks losses: recorded_sb(rate=1 / 2)"
        )


def has_collective_forward(
    strategy: Strategy, model: Any, skips_rows: bool, ranks: Ranks, measured: bool = False
) -> bool:
    """Return whether all ranks must score equally many candidates between two training steps.

    They must if the scoring forward pass waits for every rank, as each forward pass with FSDP does.
    A strategy that then cannot ensure equal numbers of candidates is refused. `measured` says that
    each rank asks a function of the user's how far training is.
    """
    needs = strategy.needs
    if isinstance(ranks, Alone) or needs is None or not strategy.scores or not needs.model:
        return False
    why = _waits_for_ranks(model, strategy.scorer)
    if why is None:
        return False
    refusals = {
        "draws a number of rows that varies from rank to rank; use draw='exact'": (
            strategy.selector.terms.draw is not Draw.EXACT
        ),
        "opens and shuts its gate on each rank by itself; use a schedule without a gate": (
            strategy.schedule.gate is not None
        ),
        "scores only examples without a remembered score; use a strategy that scores all or "
        "none": needs.remembers,
        "leaves out rows because of nonfinite='skip'; use 'raise' or 'select'": skips_rows,
        "selects by progress=, which may differ from rank to rank; pass epochs= instead": (
            measured and (strategy.schedule.uses_fractions or strategy.selector.terms.paced)
        ),
        "does not score by one forward pass of the whole model (Needs(plain_forward=True)); use "
        "Forward()": not needs.plain_forward,
    }
    for what, applies in refusals.items():
        if applies:
            raise ConfigurationError(
                f"{why}, so all ranks must score equally many batches. {strategy.name} {what}."
            )
    return True


def _waits_for_ranks(model: Any, scorer: object) -> str | None:
    """Return why a forward pass of the model waits for the other ranks; None if it does not."""
    if not isinstance(model, nn.Module):
        return None
    # Importing FSDP takes seconds; a wrapped model has imported it already.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    sharded = () if fsdp is None else (fsdp.FSDPModule, fsdp.FullyShardedDataParallel)
    if any(isinstance(part, sharded) for part in model.modules()):
        return "FSDP gathers the model's parameters from all ranks in each forward pass"
    # In eval mode SyncBatchNorm uses its running statistics and does not wait.
    synced = any(isinstance(part, nn.SyncBatchNorm) for part in model.modules())
    if synced and any(getattr(part, "training", False) for part in scorer_parts(scorer)):
        return "SyncBatchNorm in training mode gathers statistics from all ranks"
    return None
