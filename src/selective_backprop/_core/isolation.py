"""Leave a model as it was found: modes, buffers and every random stream."""

import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from selective_backprop._core.errors import ConfigurationError

LARGEST_SAVED = 2**20  # bytes; a buffer up to this size is copied in 0.1 ms before every pass


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside DDP. A forward pass through DDP would skip its next broadcast."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def list_modules(model: nn.Module) -> Sequence[nn.Module]:
    """Return a model's modules, each once, in a fraction of the time of `model.modules()`."""
    found, seen = [model], {id(model)}
    for module in found:
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found


class RandomStreams(NamedTuple):
    """The states of the global random streams on the CPU, as data that a batch may hold."""

    torch: Tensor
    numpy: Any
    python: tuple[int, Tensor, float | None]  # its 625 numbers are packed as one tensor

    @classmethod
    def now(cls) -> "RandomStreams":
        version, numbers, gauss = random.getstate()
        python = version, torch.tensor(numbers), gauss
        return cls(torch.get_rng_state(), np.random.get_state(legacy=False), python)

    def put_back(self) -> None:
        version, numbers, gauss = self.python
        torch.set_rng_state(self.torch)
        np.random.set_state(self.numpy)
        random.setstate((version, tuple(numbers.tolist()), gauss))


@contextmanager
def kept_random_streams(device: torch.device | None) -> Generator[None]:
    # Not by `RandomStreams`, whose tensor takes 30 µs at every pass.
    state, legacy, own = torch.get_rng_state(), np.random.get_state(legacy=False), random.getstate()
    gpu = None
    if device is not None and device.type == "cuda":
        gpu = torch.cuda.get_rng_state(device)
    try:
        yield
    finally:
        torch.set_rng_state(state)
        np.random.set_state(legacy)
        random.setstate(own)
        if gpu is not None and device is not None:
            torch.cuda.set_rng_state(gpu, device)


class KeptModel:
    """Save the modes and buffers of a model before a forward pass, and restore them after it.

    A pass may change small buffers in place, and bind buffers anew. A lazy module may make its
    buffers, which stay. Refused are buffers that get other memory, and changes in place of those
    that are not saved, of more than 1 MiB or with gaps. DDP inside the model broadcasts no buffers
    during the pass: other ranks may run none, and its next broadcast would be left out.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._find(list_modules(model))

    def _find(self, modules: Sequence[nn.Module]) -> None:
        if any(isinstance(each, torch.jit.ScriptModule) for each in modules):
            raise ConfigurationError(
                "the buffers of a torch.jit.ScriptModule cannot be restored after a scoring pass. "
                "Pass the module that it was made of, which has the same weights"
            )
        self._places = _places_of(modules)
        # Kept alive, too, so that an id is no other object's.
        self._bound = {
            id(each): (dict(each._buffers), set(each._non_persistent_buffers_set))
            for each in modules
        }
        held = [b for each in modules for b in each._buffers.values() if b is not None]
        self._lazy = any(map(is_lazy, held))
        made = [buffer for buffer in held if not is_lazy(buffer)]
        self._plain = [buffer for buffer in made if _is_plain(buffer)]
        self._memory = [buffer.data for buffer in self._plain]  # autograd counts no change of it
        self._small: dict[torch.device, list[Tensor]] = {}  # the bytes of those of up to 1 MiB
        for buffer in self._memory:
            if buffer.nbytes <= LARGEST_SAVED:
                piece = buffer.as_strided((buffer.numel(),), (1,)).view(torch.uint8)
                self._small.setdefault(buffer.device, []).append(piece)
        self._watched = [b for b in made if not _is_plain(b) or b.nbytes > LARGEST_SAVED]
        self._wrappers = [each for each in modules if isinstance(each, DistributedDataParallel)]

    def _stays(self, modules: Sequence[nn.Module]) -> bool:
        same = _places_of(modules) == self._places
        return same and all(map(Tensor.is_set_to, self._plain, self._memory))

    @contextmanager
    def kept(self, *, evaluates: bool = False) -> Generator[None]:
        modules = list_modules(self._model)
        # Flags are set directly: a module's `train()` may do more, and `__setattr__` is slow.
        training = [each for each in modules if each.training] if evaluates else []
        if self._lazy or not self._stays(modules):
            self._find(modules)
        images = [torch.cat(pieces) for pieces in self._small.values()]
        # Inference tensors count no versions.
        versions = [each.is_inference() or each._version for each in self._watched]
        due = [(each, each.require_forward_param_sync) for each in self._wrappers]
        try:
            for wrapper, _ in due:
                wrapper.require_forward_param_sync = False
            for module in training:
                object.__setattr__(module, "training", False)
            yield
        finally:
            for module in training:
                object.__setattr__(module, "training", True)
            for wrapper, flag in due:
                wrapper.require_forward_param_sync = flag
            rebound = not self._stays(modules)
            for module in modules if rebound else ():
                buffers, unsaved = self._bound[id(module)]
                module._buffers.clear()
                module._buffers.update(buffers)
                module._non_persistent_buffers_set = set(unsaved)
            for pieces, image in zip(self._small.values(), images, strict=True):
                saved = image.split([*map(Tensor.numel, pieces)])
                with torch.inference_mode():  # outside, inference tensors cannot be written
                    torch._foreach_copy_(pieces, saved)
        pairs = zip(self._watched, versions, strict=True)
        changed = [each for each, v in pairs if v is not True and each._version != v]
        if changed or (rebound and not self._stays(modules)):
            found = self._model.named_buffers()
            names = [repr(name) for name, buffer in found if any(buffer is c for c in changed)]
            raise ConfigurationError(
                f"a scoring pass changed {', '.join(names) or 'the memory of buffers'} for good. "
                "In place, it may only change buffers that have up to 1 MiB and no gaps in memory. "
                "Let forward() make all other changes of buffers only if self.training"
            )


def _places_of(modules: Sequence[nn.Module]) -> dict[int, tuple[object, ...]]:
    return {id(m): (*m._buffers, *map(id, m._buffers.values())) for m in modules if m._buffers}


def _is_plain(buffer: Tensor) -> bool:
    """Return whether a buffer is one piece of memory that holds its values as they are."""
    if type(buffer) is not Tensor or buffer.layout is not torch.strided or buffer.is_quantized:
        return False
    return buffer.is_contiguous() and not (buffer.is_conj() or buffer.is_neg())


def uncached_autocast(
    device: torch.device | None, dtype: torch.dtype | None = None
) -> torch.autocast | nullcontext[None]:
    """Return a context of autocast to `dtype`, or else of the user's, that caches no weights.

    Cached under `no_grad`, they have no gradient: a later training forward would train nothing.
    """
    kind = "cpu" if device is None else device.type
    if dtype is None:
        if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
            return nullcontext()
        dtype = torch.get_autocast_dtype(kind)
    return torch.autocast(kind, dtype=dtype, cache_enabled=False)
