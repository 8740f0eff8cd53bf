"""Whether rows lack a target, so that they must be marked when they are scored."""

from typing import Any

import torch
from torch import Tensor

from selective_backprop import scorers
from selective_backprop._batches.losses import ExampleLosses, lacks_target
from selective_backprop._pipeline.options import Setup
from selective_backprop.scorers._abstract import scorer_parts

MOST_LOOKED_AT = 2**16  # targets of a batch; the CPU would take longer than a GPU to mark more


class TargetWatch:
    """See, before batches leave the CPU, whether rows lack a target; only then are rows marked.

    A CPU is not slowed by marks. With other scorers than the package's own, and with losses other
    than those of pairs `(inputs, targets)`, any row may lack a target.
    """

    def __init__(self, setup: Setup) -> None:
        scoring, losses = scorer_parts(setup.strategy.scorer), setup.context.losses
        own = all(type(each).__module__.startswith(scorers.__name__) for each in scoring)
        plain = isinstance(losses, ExampleLosses) and losses.outputs is None
        self._losses = losses if setup.on_gpu and own and plain else None
        self.lacking = self._losses is None  # whether a row that was scored may have lacked one
        if self._losses is not None:
            self._losses.marks = False

    def mark(self) -> None:
        """Mark rows without a target from now on."""
        self.lacking = True
        if self._losses is not None:
            self._losses.marks = True

    def look(self, batch: Any) -> None:
        """Look at the targets of a batch that will be scored."""
        if self._losses is None:
            return
        targets = batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
        plain = isinstance(targets, Tensor) and targets.ndim > 0 and not targets.is_nested
        if not plain or targets.device.type != "cpu" or targets.numel() > MOST_LOOKED_AT:
            return self.mark()
        zeros = torch.zeros(len(targets))  # a loss of 0 is needed to lack a target
        bare = lacks_target(zeros, targets, self._losses.unreduced.ignored)
        if bare is not None and bool(bare.any()):
            self.mark()
