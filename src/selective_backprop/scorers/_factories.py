"""The user's functions that make a model and an optimiser to train beside the main model."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.saved_state import Saved


def check_factory(name: str, factory: Any) -> None:
    """Refuse anything but a function that makes something new.

    Raises:
        ConfigurationError: if it cannot be called, or is a module, which is made already.
    """
    if isinstance(factory, nn.Module) or not callable(factory):
        raise ConfigurationError(
            f"{name}={type(factory).__name__}: a function that makes one is needed, so that every "
            "training begins with a new one"
        )


def name_of(factory: Callable[..., Any]) -> str:
    """Return the name that stands for a function in saved states, the same in every process."""
    return getattr(factory, "__qualname__", type(factory).__qualname__)


def load_learner(model: nn.Module, optimizer: Optimizer, weights: Saved, state: Saved) -> None:
    """Let a model and its optimiser go on from their states.

    Copies of both are loaded first and take two steps, since an optimiser notices only then that
    its state is incomplete.

    Args:
        model: the model.
        optimizer: the optimiser of its parameters.
        weights: the model's state; if it holds None, the weights stay.
        state: the optimiser's state.

    Raises:
        ConfigurationError: if a state does not fit; nothing has changed then.
    """
    try:
        pairs = [copy.deepcopy((model, optimizer)), (model, optimizer)]
    except Exception:  # some models can be trained but not copied
        pairs = [(model, optimizer)]
    for module, steps in pairs:
        with weights.inside():
            if weights.value is not None:
                module.load_state_dict(weights.value)
        tries = module is not model and _is_finite(module) and _takes_steps(steps)
        with state.inside():
            steps.load_state_dict(copy.deepcopy(state.value))  # it keeps its argument
            if tries:
                _take_steps(steps)
                if not _is_finite(module):
                    raise ConfigurationError("steps without a gradient lead to weights of NaN")


def _is_finite(model: nn.Module) -> bool:
    return all(is_lazy(each) or bool(each.isfinite().all()) for each in model.parameters())


def _takes_steps(optimizer: Optimizer) -> bool:
    """Return whether an optimiser can step on dense gradients; some cannot."""
    try:
        _take_steps(optimizer)
    except Exception:
        return False
    return True


def _take_steps(optimizer: Optimizer) -> None:
    for _ in range(2):  # some first read their state at the second step
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
