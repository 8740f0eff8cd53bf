"""What can be wrapped in another scorer."""

from typing import Any

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance
from selective_backprop.scorers._abstract import (
    AbstractScorer,
)


def check_inner(scorer: Any, *, may_defer: bool = False) -> None:
    """Refuse what cannot be wrapped.

    Args:
        scorer: what is to be wrapped.
        may_defer: whether it may score while training goes on.

    Raises:
        ConfigurationError: if it is no scorer, remembers scores itself, or defers and may not.
    """
    check_instance("scorer", scorer, AbstractScorer, "Forward()")
    if not scorer.needs.passes or scorer.needs.remembers:
        raise ConfigurationError(
            f"{scorer!r} remembers scores itself; wrap one that takes them, such as Forward()"
        )
    if scorer.needs.defers and not may_defer:
        raise ConfigurationError(
            f"{scorer!r} scores beside the training, which would wait for it in there; write it "
            "the other way round, such as Pipelined(LowPrecision(Forward()), every=8)"
        )
