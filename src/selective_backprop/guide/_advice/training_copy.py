"""Copy a training to experiment on."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from selective_backprop._batches.losses import check_losses
from selective_backprop._batches.structure import move_batch
from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.isolation import unwrapped
from selective_backprop._core.types import LossesOf, Scores

FAR = 10.0  # times the first step's mean loss, or 10.0 if that mean is below 1


@dataclass(eq=False)
class TrainingCopy:
    """A copy of a model in training.

    Attributes:
        model: the copied model.
        optimizer: the optimiser of the copied model.
        losses: returns one loss per example of a batch.
        device: the device that batches are moved to; None leaves them where they are.
    """

    model: nn.Module
    optimizer: Optimizer
    losses: LossesOf
    device: torch.device | None
    _first: Tensor | None = None
    _last: Tensor | None = None

    @property
    def diverged(self) -> bool:
        """Whether the last step's mean loss is not finite, or far above the first step's."""
        if self._first is None or self._last is None:
            return False
        return not bool(self._last.mean() <= FAR * self._first.mean().clamp(min=1.0))

    def step(self, batch: Any) -> Scores:
        """Take a training step, and return the loss of each example."""
        batch = batch if self.device is None else move_batch(batch, self.device)
        self.optimizer.zero_grad()
        losses = check_losses(self.losses(self.model, batch), None)
        losses.mean().backward()
        try:
            self.optimizer.step()
        except (TypeError, AttributeError) as error:  # LBFGS needs a closure, for example
            raise ConfigurationError(
                f"a copy of the optimiser {type(self.optimizer).__name__} takes no step: {error}. "
                "Pass optimizer=None to train the copy with SGD"
            ) from error
        self._last = losses.detach()
        self._first = self._last if self._first is None else self._first
        return self._last


def copy_training(model: nn.Module, optimizer: Optimizer | None) -> tuple[nn.Module, Optimizer]:
    """Return a copy of a model, and an optimiser for it: a copy of the given one, or SGD.

    Raises:
        ConfigurationError: if the optimiser belongs to another model, or either cannot be copied.
    """
    together = distributed.is_available() and distributed.is_initialized()
    if together and distributed.get_world_size() > 1:
        raise ConfigurationError(
            "several processes train together. Call advise in one process, with one rank's data"
        )
    groups = [] if optimizer is None else optimizer.param_groups
    own = {id(parameter) for parameter in model.parameters()}
    if not {id(each) for group in groups for each in group["params"]} <= own:
        raise ConfigurationError(
            "the optimiser moves parameters that are not the model's. Pass the optimiser of this "
            "model, or None"
        )
    try:
        # One call copies both, so that the copied optimiser holds the copied model's parameters.
        memo: dict[int, Any] = {}
        twin, other = copy.deepcopy((unwrapped(model), optimizer), memo)
        # A copied optimiser lacks what its own `__init__` set.
        for name in vars(optimizer).keys() - vars(other).keys() if optimizer else ():
            setattr(other, name, copy.deepcopy(getattr(optimizer, name), memo))
    except Exception as error:  # a user's module may raise anything
        raise ConfigurationError(
            f"the model ({type(model).__name__}) cannot be copied with copy.deepcopy: {error}"
        ) from error
    if other is None:
        other = torch.optim.SGD(twin.parameters(), lr=0.01, momentum=0.9)
    twin.zero_grad(set_to_none=True)
    return twin, other
