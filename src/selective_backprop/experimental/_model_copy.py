"""A copy of the model to score with: how it is made, brought up to date and saved."""

import copy

import torch
from torch import Tensor, nn

from selective_backprop._core.errors import ConfigurationError, LoaderError
from selective_backprop._core.saved_state import Saved


def copy_model(model: nn.Module) -> nn.Module:
    """Return a copy of a model, without gradients; refuse a model that cannot be copied."""
    try:
        return copy.deepcopy(model).requires_grad_(False)
    except (RuntimeError, TypeError) as error:
        raise ConfigurationError(
            f"the model ({type(model).__name__}) cannot be copied with copy.deepcopy: {error}"
        ) from error


def update(twin: nn.Module, model: nn.Module) -> None:
    """Give a copy of a model its parameters, buffers and modes, without allocating anything."""
    overwrite(tensors_of(twin), tensors_of(model))
    for mine, theirs in zip(twin.modules(), model.modules(), strict=True):
        if mine.training != theirs.training:  # setting an attribute of a module is slow
            mine.training = theirs.training


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and buffers by name; a shared one is there once."""
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach() for name, tensor in named}


@torch.no_grad()
def overwrite(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Copy the values of `theirs` into `mine`; refuse tensors of other names or shapes."""
    shapes = [{name: tuple(t.shape) for name, t in tensors.items()} for tensors in (mine, theirs)]
    if shapes[0] != shapes[1]:
        changed = sorted(dict(shapes[0].items() ^ shapes[1].items()))
        raise LoaderError(
            f"{', '.join(changed[:5])} ({len(changed)} in all) changed since the model was copied; "
            "its parameters and buffers must keep their names and shapes. Make the loader anew"
        )
    if mine:
        torch._foreach_copy_(list(mine.values()), [theirs[name] for name in mine])


def cloned(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors, for a saved state."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def saved_copy(saved: Saved, like: dict[str, Tensor], *, due: bool) -> dict[str, Tensor] | None:
    """Return the tensors of a saved copy. It may be None only if its renewal is `due`."""
    return None if due and saved.value is None else saved.tensors(like)
