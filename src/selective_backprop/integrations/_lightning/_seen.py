"""Convert a batch for scoring as Lightning converts it for `training_step`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.plugins import Precision
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn

from selective_backprop._batches.structure import map_tensors


@dataclass
class Mean:
    """A running mean that never waits for the device."""

    total: Tensor | float = 0.0
    count: int = 0

    def add(self, values: Any) -> None:
        """Add a tensor of values; ignore anything else, which a later check refuses."""
        if isinstance(values, Tensor) and values.numel():
            self.total = self.total + values.detach().float().sum()
            self.count += values.numel()

    def take(self) -> Tensor | float | None:
        """Return the mean of the values since the last call; None if there were none."""
        total, count = self.total, self.count
        self.total, self.count = 0.0, 0
        return total / count if count else None


@dataclass(frozen=True)
class AsTrained:
    """A function of `(model, batch)` that gets the batch as `training_step` would.

    The trainer's precision converts the inputs and applies to the forward pass. The batch's
    transfer hooks run on a copy, since the batch itself goes through them later, in training.

    Args:
        function: the function to call.
        precision: the trainer's precision plugin.
        hooks: the hooks that a batch goes through before a step.
        mean: adds up the returned values; None to leave them.
    """

    function: Callable[[nn.Module, Any], Any]
    precision: Precision
    hooks: tuple[Callable[[Any], Any], ...] = ()
    mean: Mean | None = None

    def __call__(self, model: nn.Module, batch: Any) -> Any:
        """Return the function's result."""
        batch = self.precision.convert_input(batch)
        if self.hooks:
            batch = map_tensors(torch.clone, batch)
        for hook in self.hooks:
            batch = hook(batch)
        with self.precision.forward_context():
            values = self.function(model, batch)
        if self.mean is not None:
            self.mean.add(values)
        return values


def transfer_hooks(trainer: Trainer) -> tuple[Callable[[Any], Any], ...]:
    """Return the user's own hooks that a batch goes through before a step."""
    found: list[Callable[[Any], Any]] = []
    for name in ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"):
        for owner in (trainer.datamodule, trainer.lightning_module):
            if owner is not None and is_overridden(name, owner):
                options = {"dataloader_idx": 0}
                if name == "transfer_batch_to_device":
                    options["device"] = trainer.strategy.root_device
                found.append(partial(getattr(owner, name), **options))
                break
    return tuple(found)
