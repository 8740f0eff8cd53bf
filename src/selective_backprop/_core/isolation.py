"""Leave a model as it was found: modes, buffers and every random stream."""

import ctypes
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from itertools import chain
from math import prod
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from selective_backprop._core.errors import ConfigurationError, warn

Modules: TypeAlias = Sequence[nn.Module]
BUFFERS = attrgetter("_buffers")
LARGEST_SAVED = 2**20  # bytes; a buffer up to this size is copied in 0.1 ms before every pass


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside DDP. A forward pass through DDP would skip its next broadcast."""
    return model.module if isinstance(model, DistributedDataParallel) else model


@contextmanager
def eval_mode(model: nn.Module, modules: Modules | None = None) -> Generator[None]:
    """Run the body with every module in eval mode, then give each module its own mode back.

    Flags are set directly, because a module's own `train()` may do more than set the flag. Pass the
    model's `modules` if they are listed already.
    """
    plain, others = [], []
    for module in list_modules(model) if modules is None else modules:
        if module.training:
            attributes = module.__dict__  # setting the flag there takes a tenth of the time
            if _has_plain_flag(type(module)) and "training" in attributes:
                plain.append(attributes)
                attributes["training"] = False
            else:
                others.append(module)
                module.training = False
    try:
        yield
    finally:
        for attributes in plain:
            attributes["training"] = True
        for module in others:
            module.training = True


def list_modules(model: nn.Module) -> Modules:
    """Return a model's modules, each once, in a fraction of the time of `model.modules()`."""
    found, seen = [model], {id(model)}
    for module in found:
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found


@lru_cache(maxsize=256)
def _has_plain_flag(kind: type[nn.Module]) -> bool:
    """Return whether a class's modules hold their mode in a plain attribute."""
    return not hasattr(kind, "training") and kind.__setattr__ is nn.Module.__setattr__


@contextmanager
def kept_random_streams(device: torch.device | None) -> Generator[None]:
    """Run the body, then restore torch's, NumPy's and Python's random streams."""
    on_gpu = device is not None and device.type == "cuda"
    stream, python_state = NumpyStream.latest, random.getstate()
    if stream is None or not stream.is_current():
        stream = NumpyStream.latest = NumpyStream()
    torch_state = torch.default_generator.get_state()
    gpu_state = torch.cuda.get_rng_state(device) if on_gpu else None
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        if gpu_state is not None and device is not None:
            torch.cuda.set_rng_state(gpu_state, device)
        if not stream.is_current():
            np.random.set_state(stream.state)
        random.setstate(python_state)


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


class NumpyStream:
    """NumPy's random stream at one moment.

    Reading the stream takes 40 microseconds and writing it 50. So both are done only if the
    stream's memory shows that it has moved.
    """

    latest: ClassVar["NumpyStream | None"] = None  # as it was read last

    def __init__(self) -> None:
        # The generator behind NumPy's global functions; a program may set another.
        self._generator = np.random.get_bit_generator()  # ty: ignore[missing-attribute]
        self.state: Any = np.random.get_state(legacy=False)
        # Normal numbers come in pairs: the second can be drawn without a trace in the memory.
        self._shows = type(self._generator) is np.random.MT19937 and not self.state["has_gauss"]
        if self._shows:  # a Mersenne Twister has 624 words of 4 bytes, and a position of 4
            self._address = self._generator.ctypes.state_address
            self._memory = ctypes.string_at(self._address, 2500)

    def is_current(self) -> bool:
        """Return whether the stream has surely not moved."""
        return (
            self._shows
            and np.random.get_bit_generator() is self._generator  # ty: ignore[missing-attribute]
            and ctypes.string_at(self._address, 2500) == self._memory
        )


class _Slot(NamedTuple):
    """A buffer's place in a model, and the tensor that was there before a pass."""

    module: nn.Module
    name: str
    buffer: Tensor
    original: Tensor  # keeps the buffer's memory and shape when the buffer gets others
    piece: Tensor | None  # its bytes, if it is small and in one piece of memory

    @classmethod
    def of(cls, module: nn.Module, name: str, buffer: Tensor) -> "_Slot":
        """Return the slot of a buffer as it is now."""
        if not _is_plain(buffer):
            return cls(module, name, buffer, buffer, None)
        # Through `.data`, so that autograd counts no change. A graph that waits for its backward
        # pass may hold the buffer, and finds the same values in it.
        return cls(module, name, buffer, buffer.data, _piece(buffer.data))

    @property
    def key(self) -> tuple[int, str]:
        """Identifies the place in the model, whichever tensor is there."""
        return id(self.module), self.name

    @property
    def size(self) -> int:
        """The buffer's bytes; for a sparse buffer, the bytes that it would take as a dense one."""
        return self.buffer.numel() * self.buffer.element_size()


class _Held(NamedTuple):
    """The buffers that a module has before a pass."""

    module: nn.Module
    buffers: dict[str, Tensor | None]
    unsaved: set[str]  # the names that `state_dict()` leaves out

    @classmethod
    def of(cls, module: nn.Module) -> "_Held":
        """Return the buffers that a module has now."""
        return cls(module, dict(module._buffers), set(module._non_persistent_buffers_set))

    def put_back(self, attributes: dict[str, Any]) -> None:
        """Restore the buffers; if a pass replaced any, also restore the module's attributes."""
        found, unsaved = self.module._buffers, self.module._non_persistent_buffers_set
        if [*found] == [*self.buffers] and [*map(id, found.values())] == [
            *map(id, self.buffers.values())
        ]:
            return
        _refill(found, self.buffers)
        _refill(unsaved, self.unsaved)
        _refill(vars(self.module), attributes)


def _refill(container: Any, content: Any) -> None:
    container.clear()
    container.update(content)


class KeptBuffers:
    """Save the buffers of a model before a forward pass, and restore those that it changed.

    Values, shapes and the tensors themselves are restored. If a pass replaces a tensor of a module,
    the module's attributes are restored too, since they may describe the tensor, such as the length
    of a cached table. Buffers that a lazy module makes in its first pass stay.

    Buffers of up to 1 MiB are saved before every pass. Larger buffers are all saved until one pass
    has ended; from then on, only those that a pass has changed. If a larger buffer first changes
    later, it keeps its new values, and a warning says so. A change through `.data` is seen only in
    saved buffers.

    DDP inside the model broadcasts no buffers during the pass: the other ranks may run none, and
    DDP would leave out its next broadcast.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._moving: set[tuple[int, str]] | None = None  # larger buffers; None if not known yet
        self._find(list_modules(model))

    def _find(self, modules: Modules) -> None:
        """Take note of the model's buffers."""
        if any(isinstance(each, torch.jit.ScriptModule) for each in modules):
            raise ConfigurationError(
                "the buffers of a torch.jit.ScriptModule cannot be restored after a scoring pass. "
                "Pass the module that it was made of, which has the same weights"
            )
        self._places = _places(modules)
        # These also keep the buffers alive, so that no new one can get an old one's address.
        self._held = [_Held.of(module) for module in modules]
        found = [
            (held.module, name, buffer)
            for held in self._held
            for name, buffer in held.buffers.items()
            if buffer is not None
        ]
        slots = [_Slot.of(*place) for place in found if not is_lazy(place[-1])]
        self._lazy = len(slots) < len(found)
        self._wrappers = [each for each in modules if isinstance(each, DistributedDataParallel)]
        plain = [slot for slot in slots if slot.original is not slot.buffer]
        self._buffers = [slot.buffer for slot in plain]
        self._originals = [slot.original for slot in plain]
        self._apart = [slot for slot in slots if slot.piece is None]
        self._small: dict[torch.device, list[Tensor]] = {}
        for slot in slots:
            if slot.piece is not None:
                self._small.setdefault(slot.buffer.device, []).append(slot.piece)

    @contextmanager
    def kept(self, modules: Modules | None = None) -> Generator[None]:
        """Run the body, then restore the buffers that it changed.

        Pass the model's `modules` if they are listed already.
        """
        modules = list_modules(self._model) if modules is None else modules
        if (
            self._lazy
            or _places(modules) != self._places
            or not all(map(Tensor.is_set_to, self._buffers, self._originals))
        ):
            self._find(modules)
        # Taken now, since a pass inside the body may replace them.
        places, held, buffers, originals = self._places, self._held, self._buffers, self._originals
        small, apart, known = self._small, self._apart, self._moving
        due = [(each, each.require_forward_param_sync) for each in self._wrappers]
        attributes = [*map(dict.copy, map(vars, modules))]
        images = [torch.cat(pieces) for pieces in small.values()]
        versions = [_version(slot.buffer) for slot in apart]
        saved = [
            slot.buffer.clone()
            if known is None or slot.key in known or slot.size <= LARGEST_SAVED
            else None
            for slot in apart
        ]
        whole = False
        try:
            for wrapper, _ in due:
                wrapper.require_forward_param_sync = False
            yield
            whole = True
        finally:
            for wrapper, flag in due:
                wrapper.require_forward_param_sync = flag
            if _places(modules) != places:
                for each, before in zip(held, attributes, strict=True):
                    each.put_back(before)
            if not all(map(Tensor.is_set_to, buffers, originals)):  # other memory or shapes
                for buffer, original in zip(buffers, originals, strict=True):
                    buffer.data = original
            for pieces, image in zip(small.values(), images, strict=True):
                # On a GPU, comparing would make the host wait, so all bytes are restored.
                if image.device.type != "cpu" or not torch.equal(torch.cat(pieces), image):
                    _restore(pieces, image)
            moved, lost = set(), []
            for slot, version, value in zip(apart, versions, saved, strict=True):
                changed = _version(slot.buffer) != version
                if value is None:
                    lost += [slot] * changed
                elif changed or _differ(slot.buffer, value):
                    with torch.inference_mode():  # outside of it, inference tensors are read-only
                        slot.original.copy_(value)
                    changed = True
                if changed:
                    moved.add(slot.key)
            # A pass that raised may have ended before it changed a buffer.
            if whole or known is not None:
                self._moving = moved | (known or set())
            for slot in lost:
                self._warn(slot)

    def _warn(self, slot: _Slot) -> None:
        paths = {id(module): path for path, module in self._model.named_modules()}
        name = ".".join(filter(None, (paths[id(slot.module)], slot.name)))
        warn(
            f"a scoring pass changed the buffer {name!r} ({slot.size:,} bytes), which was not "
            f"restored, because buffers of more than {LARGEST_SAVED:,} bytes are saved only after "
            "they have changed once. From now on, this buffer is restored."
        )


def _places(modules: Modules) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Return what identifies the buffers and their places in the modules."""
    held = [*map(BUFFERS, modules)]
    there = map(id, chain.from_iterable(map(dict.values, held)))
    return [*map(id, modules)], [*map(len, held)], [*chain.from_iterable(held)], [*there]


def _restore(pieces: list[Tensor], image: Tensor) -> None:
    """Write back the bytes that changed; on a GPU, write back all bytes."""
    pairs = list(zip(pieces, image.split([len(piece) for piece in pieces]), strict=True))
    if image.device.type == "cpu":
        pairs = [(piece, saved) for piece, saved in pairs if not torch.equal(piece, saved)]
    with torch.inference_mode():  # outside of it, inference tensors cannot be written
        torch._foreach_copy_([piece for piece, _ in pairs], [saved for _, saved in pairs])


def _is_plain(buffer: Tensor) -> bool:
    """Return whether a buffer's memory holds its values as they are."""
    if type(buffer) is not Tensor or buffer.layout is not torch.strided or buffer.is_quantized:
        return False
    return not (buffer.is_conj() or buffer.is_neg())


def _piece(buffer: Tensor) -> Tensor | None:
    """Return the bytes of a buffer of at most 1 MiB; None if it is larger or has gaps."""
    # Along an axis of stride 0 there is one element, however many rows are shown.
    axes = [(n, step) for n, step in zip(buffer.shape, buffer.stride(), strict=True) if step]
    count = prod(n for n, _ in axes)
    span = 1 + sum((n - 1) * step for n, step in axes) if buffer.numel() else 0
    if span > count or span * buffer.element_size() > LARGEST_SAVED:
        return None
    return buffer.as_strided((span,), (1,)).view(torch.uint8)


def _version(buffer: Tensor) -> int:
    return 0 if buffer.is_inference() else buffer._version  # inference tensors count no changes


def _differ(one: Tensor, other: Tensor) -> bool:
    return one.layout == torch.strided and not torch.equal(one, other)


def uncached_autocast(device: torch.device | None) -> torch.autocast | nullcontext[None]:
    """Return a context in which the user's autocast caches no weights.

    Weights cast under `no_grad` have no gradient. PyTorch before pull request 165068 caches these
    weights. A training forward in the same autocast region would then use them and train nothing.
    """
    kind = "cpu" if device is None else device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), cache_enabled=False)
