"""Leave a model as it was found: modes, buffers and every random stream."""

import ctypes
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from selective_backprop._core.errors import warn

Modules: TypeAlias = Sequence[nn.Module]
LARGEST_SAVED = 2**20  # bytes; a buffer up to this size is copied in 0.1 ms before every pass


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside DDP: a forward through the wrapper would skip its next broadcast."""
    return model.module if isinstance(model, DistributedDataParallel) else model


@contextmanager
def eval_mode(model: nn.Module, modules: Modules | None = None) -> Generator[None]:
    """Run the body with every module in eval mode, then give each module its own mode back.

    Flags are set directly, because a module's own `train()` may do more than set the flag. The
    model's `modules` may be given, where they are listed already.
    """
    modules = list_modules(model) if modules is None else modules
    changed = [module for module in modules if module.training]
    _set_training(changed, False)
    try:
        yield
    finally:
        _set_training(changed, True)


def list_modules(model: nn.Module) -> Modules:
    """Return a model's modules, each once, in a fraction of the time of `model.modules()`."""
    found, seen = [model], {id(model)}
    for module in found:
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found


def _set_training(modules: Modules, training: bool) -> None:
    for module in modules:
        if _has_plain_flag(type(module)) and "training" in (attributes := module.__dict__):
            attributes["training"] = training  # a tenth of the time that `nn.Module` takes
        else:
            module.training = training


@lru_cache(maxsize=256)
def _has_plain_flag(kind: type[nn.Module]) -> bool:
    """Return whether a class's modules hold their mode in a plain attribute."""
    return not hasattr(kind, "training") and kind.__setattr__ is nn.Module.__setattr__


@contextmanager
def kept_random_streams(device: torch.device | None) -> Generator[None]:
    """Run the body, then put torch's, NumPy's and Python's random streams back."""
    on_gpu = device is not None and device.type == "cuda"
    numpy_stream, python_state = _numpy_stream(), random.getstate()
    torch_state = torch.default_generator.get_state()
    gpu_state = torch.cuda.get_rng_state(device) if on_gpu else None
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        if gpu_state is not None and device is not None:
            torch.cuda.set_rng_state(gpu_state, device)
        numpy_stream.put_back()
        random.setstate(python_state)


class _NumpyStream(NamedTuple):
    """NumPy's random stream at one moment.

    Reading it takes 40 microseconds and writing it 50, so that it is read only if it has moved
    since it was read last, and written only if it has moved since: that is seen in its memory.
    """

    generator: Any
    words: bytes | None  # of its memory; None for a generator of another kind
    state: Any

    def is_current(self) -> bool:
        """Return whether the stream is as it was; False too where that cannot be seen."""
        # A second normal number of a pair, if one is left, can be drawn without a trace in memory.
        if self.words is None or self.state["has_gauss"]:
            return False
        generator = _numpy_generator()
        return generator is self.generator and _words(generator) == self.words

    def put_back(self) -> None:
        """Bring the stream back to where it was."""
        if not self.is_current():
            np.random.set_state(self.state)


_latest: _NumpyStream | None = None


def _numpy_stream() -> _NumpyStream:
    global _latest
    stream = _latest
    if stream is None or not stream.is_current():
        generator = _numpy_generator()
        state = np.random.get_state(legacy=False)
        stream = _latest = _NumpyStream(generator, _words(generator), state)
    return stream


def _numpy_generator() -> Any:
    """Return what draws NumPy's global numbers; a program may set another."""
    return np.random.get_bit_generator()  # ty: ignore[missing-attribute]


def _words(generator: Any) -> bytes | None:
    """Return the memory of a Mersenne Twister: 624 words of 4 bytes, and a position of 4."""
    if type(generator) is not np.random.MT19937:
        return None
    return ctypes.string_at(generator.ctypes.state_address, 2500)


class _Slot(NamedTuple):
    """A buffer's place in a model, and the tensor that was there before a pass."""

    module: nn.Module
    name: str
    buffer: Tensor

    @property
    def key(self) -> tuple[int, str]:
        """Identifies the place in the model, whichever tensor is there."""
        return id(self.module), self.name


class KeptBuffers:
    """Save the buffers of a model before a forward pass, and put back those that it changed.

    Buffers of up to 1 MiB are saved before every pass. Larger ones are all saved until one pass
    has run to its end; after that, only those that a pass was seen to change. A larger buffer
    that first changes later is not put back, and a warning says so. A change through `.data` is
    seen only in buffers that are saved.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._moving: set[tuple[int, str]] | None = None  # larger ones; None: not known yet
        self._find()

    def _find(self, modules: Modules | None = None) -> None:
        """Take note of the model's buffers."""
        modules = list_modules(self._model) if modules is None else modules
        self._places = _places(modules)
        self._slots = [  # held, so that no new buffer can get the address of one of them
            _Slot(module, name, buffer)
            for module in modules
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._strided = [slot.buffer for slot in self._slots if slot.buffer.layout is torch.strided]
        self._addresses = _addresses(self._strided)
        self._large = [slot for slot in self._slots if not _is_small(slot.buffer)]
        self._small: dict[torch.device, list[Tensor]] = {}  # views of the bytes
        for _, _, buffer in self._slots:
            if _is_small(buffer):
                # Through `.data`, so that autograd counts no change: a graph that waits for its
                # backward pass may hold the buffer, and finds the same values in it.
                flat = buffer.data.as_strided((buffer.numel(),), (1,))
                self._small.setdefault(buffer.device, []).append(flat.view(torch.uint8))

    @contextmanager
    def kept(self, modules: Modules | None = None) -> Generator[None]:
        """Run the body, then put back the buffers that it changed.

        The model's `modules` may be given, where they are listed already.
        """
        modules = list_modules(self._model) if modules is None else modules
        if _places(modules) != self._places or _addresses(self._strided) != self._addresses:
            self._find(modules)
        slots, large, small, known = self._slots, self._large, self._small, self._moving
        images = [torch.cat(views) for views in small.values()]
        versions = [_version(slot.buffer) for slot in large]
        saved = [
            slot.buffer.clone() if known is None or slot.key in known else None for slot in large
        ]
        whole = False
        try:
            yield
            whole = True
        finally:
            for views, image in zip(small.values(), images, strict=True):
                _restore(views, image)
            moved = set()
            for slot, version, value in zip(large, versions, saved, strict=True):
                replaced = slot.module._buffers.get(slot.name) is not slot.buffer
                changed = replaced or _version(slot.buffer) != version
                if value is not None and (changed or _differ(slot.buffer, value)):
                    slot.buffer.copy_(value)
                    changed = True
                if changed:
                    moved.add(slot.key)
                    if value is None:
                        self._warn(slot)
            # A module may also put a new tensor in the place instead of writing into the old one.
            for module, name, buffer in slots:
                if module._buffers.get(name) is not buffer:
                    module._buffers[name] = buffer
            # A pass that raised may have ended before it changed a buffer.
            if whole or known is not None:
                self._moving = moved | (known or set())

    def _warn(self, slot: _Slot) -> None:
        paths = {id(module): path for path, module in self._model.named_modules()}
        name = ".".join(filter(None, (paths[id(slot.module)], slot.name)))
        warn(
            f"a scoring pass moved the buffer {name!r} of {slot.buffer.nbytes:,} bytes, which no "
            f"pass had moved before. It was not put back: buffers of more than {LARGEST_SAVED:,} "
            "bytes are saved only once they are seen to move. From now on it is kept."
        )


def _places(modules: Modules) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Return what tells buffers and the places where they hang from others."""
    held = [module._buffers for module in modules]
    there = map(id, chain.from_iterable(map(dict.values, held)))
    return [*map(id, modules)], [*map(len, held)], [*chain.from_iterable(held)], [*there]


def _addresses(buffers: Sequence[Tensor]) -> list[Any]:
    """Return where buffers have their memory, which may change below the same tensor."""
    return [*map(Tensor.data_ptr, buffers)]


def _restore(views: list[Tensor], image: Tensor) -> None:
    """Write back the bytes that changed; on a GPU all, since comparing makes the host wait."""
    on_host = image.device.type == "cpu"
    if on_host and torch.equal(torch.cat(views), image):
        return
    pairs = list(zip(views, image.split([len(view) for view in views]), strict=True))
    if on_host:
        pairs = [(view, piece) for view, piece in pairs if not torch.equal(view, piece)]
    with torch.inference_mode():  # outside of it, inference tensors cannot be written
        torch._foreach_copy_([view for view, _ in pairs], [piece for _, piece in pairs])


def large_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers that are not saved before every pass."""
    return [name for name, buffer in model.named_buffers() if not _is_small(buffer)]


def _is_small(buffer: Tensor) -> bool:
    """Return whether a buffer takes at most 1 MiB, in one piece of memory."""
    plain = type(buffer) is Tensor and buffer.layout is torch.strided and not buffer.is_quantized
    if not plain or buffer.nbytes > LARGEST_SAVED:
        return False
    # Dense: the elements fill their span of memory, without gaps or overlaps.
    axes = [(n, stride) for n, stride in zip(buffer.shape, buffer.stride(), strict=True) if n > 1]
    span = 1 + sum((n - 1) * stride for n, stride in axes)
    return not buffer.numel() or (span == buffer.numel() and all(stride for _, stride in axes))


def _version(buffer: Tensor) -> int:
    return 0 if buffer.is_inference() else buffer._version  # inference tensors count no changes


def _differ(one: Tensor, other: Tensor) -> bool:
    return one.layout == torch.strided and not torch.equal(one, other)


def uncached_autocast(device: torch.device | None) -> torch.autocast | nullcontext[None]:
    """Return a context in which the user's autocast caches no weights.

    Weights cast under `no_grad` have no gradient. PyTorch before pull request 165068 caches them,
    and a training forward that follows in the same autocast region would then train nothing.
    """
    kind = "cpu" if device is None else device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), cache_enabled=False)
