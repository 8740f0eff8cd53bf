"""Leave a model as it was found: modes, buffers and every random stream."""

import random
from collections.abc import Generator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model itself: a forward through its wrapper would skip the next broadcast."""
    return model.module if isinstance(model, DistributedDataParallel) else model


@contextmanager
def eval_mode(model: nn.Module) -> Generator[None]:
    """Run the body with every module in eval mode, then give each module its own mode back.

    Flags are set directly: a module's own `train()` may do more than that, and must not.
    """
    changed = [module for module in model.modules() if module.training]
    for module in changed:
        module.training = False
    try:
        yield
    finally:
        for module in changed:
            module.training = True


@contextmanager
def kept_random_streams(device: torch.device | None) -> Generator[None]:
    """Run the body, then put torch's, NumPy's and Python's random streams back."""
    cuda = device is not None and device.type == "cuda"
    torch_state = torch.get_rng_state()
    cuda_state = torch.cuda.get_rng_state(device) if cuda else None
    numpy_state = np.random.get_state()
    python_state = random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        if cuda_state is not None:
            torch.cuda.set_rng_state(cuda_state, device)  # ty: ignore[invalid-argument-type]
        np.random.set_state(numpy_state)
        random.setstate(python_state)


class KeptBuffers:
    """Save and restore the buffers that a forward pass moves, even in eval mode.

    All buffers are saved at the first whole pass. From then on only those that have ever been
    seen to move are, which for most models is none.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._moving: set[str] | None = None

    @contextmanager
    def kept(self) -> Generator[None]:
        """Run the body, then put back the buffers that it moved."""
        before = dict(self._model.named_buffers())
        versions = {name: _version(buffer) for name, buffer in before.items()}
        names = before.keys() if self._moving is None else self._moving & before.keys()
        saved = {name: before[name].clone() for name in names}
        whole = False
        try:
            yield
            whole = True
        finally:
            after = dict(self._model.named_buffers())
            moved = {
                name
                for name, buffer in before.items()
                if after.get(name) is not buffer or _version(buffer) != versions[name]
            }
            if self._moving is None:  # what was written through `.data` counts no changes
                moved |= {name for name in saved if _differ(before[name], saved[name])}
            for name in (moved | (self._moving or set())) & saved.keys():
                self._restore(name, before[name], saved[name])
            if whole or self._moving is not None:
                self._moving = moved | (self._moving or set())

    def _restore(self, name: str, buffer: Tensor, value: Tensor) -> None:
        path, _, leaf = name.rpartition(".")
        owner = self._model.get_submodule(path)
        buffer.copy_(value)
        if owner._buffers.get(leaf) is not buffer:
            owner._buffers[leaf] = buffer


def _version(buffer: Tensor) -> int:
    return 0 if buffer.is_inference() else buffer._version  # inference tensors count no changes


def _differ(one: Tensor, other: Tensor) -> bool:
    return one.layout == torch.strided and not torch.equal(one, other)


def uncached_autocast(device: torch.device | None) -> torch.autocast | nullcontext[None]:
    """Return a context that keeps the user's autocast from remembering weights cast here.

    Weights cast under `no_grad` have no gradient; were they cached, as they are before pytorch
    pull request 165068, the training forward that follows in the same autocast region would
    train nothing.
    """
    kind = "cpu" if device is None else device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), cache_enabled=False)
