"""Show a batch that is scored as `training_step` will see it."""

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
    """A mean that is taken without reading the device until it is asked for."""

    total: Tensor | float = 0.0
    count: int = 0

    def add(self, values: Any) -> None:
        """Take in a tensor of values; what is none is left to others to refuse."""
        if isinstance(values, Tensor) and values.numel():
            self.total = self.total + values.detach().float().sum()
            self.count += values.numel()

    def take(self) -> Tensor | float | None:
        """Return the mean of what was taken in since the last time; None if nothing was."""
        total, count = self.total, self.count
        self.total, self.count = 0.0, 0
        return total / count if count else None


@dataclass(frozen=True)
class AsTrained:
    """A function of `(model, batch)`, given what `training_step` is given.

    Inputs are converted and the forward pass runs as the trainer's precision asks for, and the
    hooks for the transfer of a batch are called, on a copy: the batch itself is yet to go through
    them when it is trained on.

    Args:
        function: what to call.
        precision: the trainer's.
        hooks: what the batch goes through before a step.
        mean: takes in what is returned; None if nothing does.
    """

    function: Callable[[nn.Module, Any], Any]
    precision: Precision
    hooks: tuple[Callable[[Any], Any], ...] = ()
    mean: Mean | None = None

    def __call__(self, model: nn.Module, batch: Any) -> Any:
        """Return what the function does."""
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
    """Return the hooks that a batch goes through before a step, where the user has any."""
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
