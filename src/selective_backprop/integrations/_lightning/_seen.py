"""Convert a batch for scoring as Lightning converts it for `training_step`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.plugins import Precision
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import nn

from selective_backprop.integrations._kit import map_tensors


@dataclass(frozen=True)
class AsTrained:
    """A function of `(model, batch)` that gets the batch as `training_step` would.

    Inputs and forward pass use the trainer's precision. The transfer hooks run on a copy of the
    batch, because the batch itself goes through them later, in training.
    """

    function: Callable[[nn.Module, Any], Any]
    precision: Precision
    hooks: tuple[Callable[[Any], Any], ...] = ()

    def __call__(self, model: nn.Module, batch: Any) -> Any:
        """Return the function's result."""
        batch = self.precision.convert_input(batch)
        if self.hooks:
            batch = map_tensors(torch.clone, batch)
        for hook in self.hooks:
            batch = hook(batch)
        with self.precision.forward_context():
            return self.function(model, batch)


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
