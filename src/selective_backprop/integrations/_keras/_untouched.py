"""Restore a Keras model after a forward pass, including state that torch does not see."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from selective_backprop._core.types import LossesOf, OutputsOf


class Untouched:
    """A callable of `(model, batch)` that leaves a Keras model unchanged.

    Keras keeps statistics and dropout seeds in variables of its own, and layers in lists. Torch
    does not find these among buffers and modules.

    Args:
        function: the function to call with a model and a batch.
    """

    def __init__(self, function: LossesOf | OutputsOf) -> None:
        self._function = function
        self._models: dict[nn.Module, _State] = {}

    def __call__(self, model: Any, batch: Any) -> Any:
        """Return the function's result."""
        state = self._models.get(model)
        if state is None:
            state = self._models[model] = _State(model)
        with state.kept():
            return self._function(model, batch)


class _State:
    """The modes, buffers and variables of a built model that a forward pass may change.

    The first pass saves every tensor; later passes save only tensors that have ever changed.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(all_modules(model))
        tensors = [buffer for module in self._modules for buffer in module.buffers(recurse=False)]
        variables = getattr(model, "non_trainable_variables", ())
        self._tensors = [*tensors, *(variable.value for variable in variables)]
        self._moving: set[int] | None = None

    @contextmanager
    def kept(self) -> Generator[None]:
        modes = [module.training for module in self._modules]
        versions = [_version(tensor) for tensor in self._tensors]
        places = range(len(versions)) if self._moving is None else self._moving
        saved = {place: self._tensors[place].detach().clone() for place in places}
        whole = False
        try:
            yield
            whole = True
        finally:
            for module, mode in zip(self._modules, modes, strict=True):
                module.training = mode
            moved = {n for n, t in enumerate(self._tensors) if _version(t) != versions[n]}
            if self._moving is None:  # torch writes its statistics without counting a version
                moved |= {n for n in saved if not torch.equal(self._tensors[n], saved[n])}
            moved |= self._moving or set()
            for place in moved & saved.keys():
                self._tensors[place].data.copy_(saved[place])
            if whole or self._moving is not None:
                self._moving = moved


def all_modules(model: nn.Module) -> Iterator[nn.Module]:
    """Yield every torch module in a Keras model, including layers within layers."""
    waiting, seen = [model], set()
    while waiting:
        for module in waiting.pop().modules():
            if module not in seen:
                seen.add(module)
                yield module
                waiting.extend(
                    layer for layer in getattr(module, "layers", ()) if isinstance(layer, nn.Module)
                )


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
