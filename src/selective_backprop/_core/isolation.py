"""Leave a model as it was found: modes, buffers and every random stream."""

import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from selective_backprop._core.errors import ConfigurationError

Modules: TypeAlias = Sequence[nn.Module]
Places: TypeAlias = dict[int, tuple[Any, ...]]  # names and identities of buffers, by module
LARGEST_SAVED = 2**20  # bytes; a buffer up to this size is copied in 0.1 ms before every pass


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside DDP. A forward pass through DDP would skip its next broadcast."""
    return model.module if isinstance(model, DistributedDataParallel) else model


@contextmanager
def eval_mode(model: nn.Module, modules: Modules | None = None) -> Generator[None]:
    """Run the body with every module in eval mode, then give each module its own mode back.

    Flags are set directly: a module's own `train()` may do more, and its `__setattr__` is slow.
    Pass the model's `modules` if they are listed already.
    """
    modules = list_modules(model) if modules is None else modules
    training = [module for module in modules if module.training]
    for module in training:
        object.__setattr__(module, "training", False)
    try:
        yield
    finally:
        for module in training:
            object.__setattr__(module, "training", True)


def list_modules(model: nn.Module) -> Modules:
    """Return a model's modules, each once, in a fraction of the time of `model.modules()`."""
    found, seen = [model], {id(model)}
    for module in found:
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found


@contextmanager
def kept_random_streams(device: torch.device | None) -> Generator[None]:
    """Run the body, then restore torch's, NumPy's and Python's random streams."""
    on_gpu = device is not None and device.type == "cuda"
    python, numpy = random.getstate(), np.random.get_state(legacy=False)
    on_cpu = torch.default_generator.get_state()
    gpu = torch.cuda.get_rng_state(device) if on_gpu else None
    try:
        yield
    finally:
        torch.default_generator.set_state(on_cpu)
        if gpu is not None and device is not None:
            torch.cuda.set_rng_state(gpu, device)
        np.random.set_state(numpy)
        random.setstate(python)


class RandomStreams(NamedTuple):
    """The states of the global random streams on the CPU, as data that a batch may hold."""

    torch: Tensor
    numpy: Any
    python: tuple[int, Tensor, float | None]

    @classmethod
    def now(cls) -> "RandomStreams":
        """Return the states as they are."""
        version, numbers, gauss = random.getstate()
        python_state = version, torch.tensor(numbers), gauss
        return cls(torch.get_rng_state(), np.random.get_state(legacy=False), python_state)

    def put_back(self) -> None:
        """Let the streams continue from these states."""
        torch.set_rng_state(self.torch)
        np.random.set_state(self.numpy)
        version, numbers, gauss = self.python
        random.setstate((version, tuple(numbers.tolist()), gauss))


class KeptBuffers:
    """Save the buffers of a model before a forward pass, and restore those that it changed.

    If a pass registers, deletes or replaces buffers of a module, the module's attributes are
    restored too: they may describe a buffer, such as the length of a cached table. Buffers that a
    lazy module makes in its first pass stay. Buffers of more than 1 MiB, or with gaps in memory,
    are not saved: if a pass changes one in place, an error says so.

    DDP inside the model broadcasts no buffers during the pass: the other ranks may run none, and
    DDP would leave out its next broadcast.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._find(list_modules(model))

    def _find(self, modules: Modules) -> None:
        """Find the buffers, and keep them alive, so that an id is no other object's."""
        if any(isinstance(each, torch.jit.ScriptModule) for each in modules):
            raise ConfigurationError(
                "the buffers of a torch.jit.ScriptModule cannot be restored after a scoring pass. "
                "Pass the module that it was made of, which has the same weights"
            )
        self._places = _places(modules)
        self._held = [(m, dict(m._buffers), {*m._non_persistent_buffers_set}) for m in modules]
        given = [(m, name, b) for m in modules for name, b in m._buffers.items() if b is not None]
        made = [each for each in given if not is_lazy(each[2])]
        self._lazy = len(made) < len(given)
        self._plain = [buffer for *_, buffer in made if _is_plain(buffer)]
        self._memory = [buffer.data for buffer in self._plain]  # autograd counts no change of it
        self._small: dict[torch.device, list[Tensor]] = {}  # the bytes of those of up to 1 MiB
        for buffer in self._plain:
            if buffer.nbytes <= LARGEST_SAVED:
                piece = buffer.data.as_strided((buffer.numel(),), (1,)).view(torch.uint8)
                self._small.setdefault(buffer.device, []).append(piece)
        # Only watched.
        self._others = [b for b in made if not _is_plain(b[2]) or b[2].nbytes > LARGEST_SAVED]
        self._wrappers = [each for each in modules if isinstance(each, DistributedDataParallel)]

    @contextmanager
    def kept(self, modules: Modules | None = None) -> Generator[None]:
        """Run the body, then restore the buffers that it changed.

        Pass the model's `modules` if they are listed already.

        Raises:
            ConfigurationError: if the body changed a buffer that is not saved.
        """
        modules = list_modules(self._model) if modules is None else modules
        same = _places(modules) == self._places and not self._lazy
        if not same or not all(map(Tensor.is_set_to, self._plain, self._memory)):
            self._find(modules)
        attributes = [*map(dict.copy, map(vars, modules))]
        images = [torch.cat(pieces) for pieces in self._small.values()]
        # Inference tensors count no versions.
        versions = [each.is_inference() or each._version for *_, each in self._others]
        due = [(each, each.require_forward_param_sync) for each in self._wrappers]
        try:
            for wrapper, _ in due:
                wrapper.require_forward_param_sync = False
            yield
        finally:
            for wrapper, flag in due:
                wrapper.require_forward_param_sync = flag
            now = _places(modules)
            for (module, buffers, unsaved), own in zip(self._held, attributes, strict=True):
                if now.get(id(module)) != self._places.get(id(module)):
                    _refill(module._buffers, buffers)
                    _refill(module._non_persistent_buffers_set, unsaved)
                    _refill(vars(module), own)
            for buffer, memory in zip(self._plain, self._memory, strict=True):
                if not buffer.is_set_to(memory):  # it was resized, or got other memory
                    buffer.data = memory
            for pieces, image in zip(self._small.values(), images, strict=True):
                # On a GPU, comparing would make the host wait, so all bytes are restored.
                if image.device.type != "cpu" or not torch.equal(torch.cat(pieces), image):
                    saved = image.split([*map(Tensor.numel, pieces)])
                    with torch.inference_mode():  # outside, inference tensors cannot be written
                        torch._foreach_copy_(pieces, saved)
        for (owner, name, buffer), version in zip(self._others, versions, strict=True):
            if version is not True and buffer._version != version:
                paths = {id(each): path for path, each in self._model.named_modules()}
                raise ConfigurationError(
                    f"a scoring pass changed {'.'.join(filter(None, (paths[id(owner)], name)))!r}, "
                    "a buffer that cannot be restored: it has more than 1 MiB, or gaps in memory. "
                    "Let forward() change it only if self.training"
                )


def _places(modules: Modules) -> Places:
    """Return the names and identities of each module's buffers."""
    return {id(m): (*m._buffers, *map(id, m._buffers.values())) for m in modules if m._buffers}


def _refill(container: Any, content: Any) -> None:
    container.clear()
    container.update(content)


def _is_plain(buffer: Tensor) -> bool:
    """Return whether a buffer is one piece of memory that holds its values as they are."""
    if type(buffer) is not Tensor or buffer.layout is not torch.strided or buffer.is_quantized:
        return False
    return buffer.is_contiguous() and not (buffer.is_conj() or buffer.is_neg())


def uncached_autocast(device: torch.device | None) -> torch.autocast | nullcontext[None]:
    """Return a context in which the user's autocast caches no weights.

    Weights cast under `no_grad` have no gradient. PyTorch before pull request 165068 caches these
    weights. A training forward in the same autocast region would then use them and train nothing.
    """
    kind = "cpu" if device is None else device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), cache_enabled=False)
