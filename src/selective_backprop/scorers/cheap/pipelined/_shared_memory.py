"""Tensors in memory that two processes share, and batches that travel through it."""

import io
import math
import pickle
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._core.errors import BatchError, LoaderError

ALIGNMENT = 64  # bytes, a cache line


class TensorSlot(NamedTuple):
    """Where in a flat buffer of bytes a tensor lies, and how.

    Attributes:
        start: its first byte.
        dtype: its type.
        shape: its shape.
        stride: its strides, of a tensor without gaps.
    """

    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The byte after its last."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize

    def of(self, buffer: Tensor) -> Tensor:
        """Return the tensor there, a view."""
        return buffer[self.start : self.stop].view(self.dtype).as_strided(self.shape, self.stride)


def find_slot(tensor: Tensor, after: int) -> TensorSlot:
    """Return a slot from byte `after` on for a tensor, in the memory format that it has."""
    start = -(-after // ALIGNMENT) * ALIGNMENT
    stride = torch.empty_like(tensor, device="meta").stride()
    return TensorSlot(start, tensor.dtype, tuple(tensor.shape), tuple(stride))


def find_slots(tensors: dict[str, Tensor]) -> dict[str, TensorSlot]:
    """Return slots for tensors one after another."""
    slots: dict[str, TensorSlot] = {}
    end = 0
    for name, tensor in tensors.items():
        slots[name] = find_slot(tensor, end)
        end = slots[name].stop
    return slots


def allocate(size: int) -> Tensor:
    """Return a buffer of at least `size` bytes that processes share.

    Raises:
        LoaderError: if there is not so much shared memory.
    """
    try:
        return torch.empty(max(size, 1), dtype=torch.uint8).share_memory_()
    except RuntimeError as error:
        raise LoaderError(
            f"{size} bytes of shared memory are not to be had: {error}. Let the system have more "
            "(of a container, --shm-size), or take a smaller ahead="
        ) from error


class SharedMessage:
    """A value made ready for another process: its tensors to be copied, the rest as bytes.

    The tensors' own storage stays where it is.

    Args:
        value: tensors on the host, in whatever can be pickled.

    Attributes:
        size: bytes that it takes.

    Raises:
        BatchError: if something in it cannot be pickled, or is on another device.
    """

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        pickler = _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
        pickler.slots = []
        try:
            pickler.dump(value)
        except (AttributeError, RuntimeError, TypeError, pickle.PickleError) as error:
            raise BatchError(
                f"the batch cannot be sent to the process that scores: {error}. Let the collate "
                "function return tensors, and others that can be pickled."
            ) from error
        self._slots = pickler.slots
        self._bytes = file.getvalue()
        self._start = self._slots[-1][0].stop if self._slots else 0
        self.size = self._start + len(self._bytes)

    @torch.no_grad()
    def write(self, buffer: Tensor) -> tuple[int, int]:
        """Copy it into a buffer, and return where `read` finds it: its first byte and the last's.

        Args:
            buffer: of `size` bytes or more.
        """
        for slot, tensor in self._slots:
            slot.of(buffer).copy_(tensor)
        buffer.numpy()[self._start : self.size] = memoryview(self._bytes)
        return self._start, self.size


def read(buffer: Tensor, start: int, stop: int) -> Any:
    """Return what a message was made of; its tensors are views of the buffer."""
    unpickler = _Unpickler(io.BytesIO(buffer.numpy()[start:stop].tobytes()))
    unpickler.buffer = buffer
    return unpickler.load()


class _Pickler(pickle.Pickler):
    slots: list[tuple[TensorSlot, Tensor]]

    def persistent_id(self, value: Any) -> TensorSlot | None:
        if not isinstance(value, Tensor):
            return None
        if value.device.type != "cpu":
            raise BatchError(
                f"the batch has a tensor on {value.device}, and the process that scores works on "
                "the CPU, where the model is; move the batch there"
            )
        special = value.layout != torch.strided or value.is_nested or value.is_quantized
        if type(value) is not Tensor or special:
            return None  # pickled by value
        slot = find_slot(value, self.slots[-1][0].stop if self.slots else 0)
        self.slots.append((slot, value))
        return slot


class _Unpickler(pickle.Unpickler):
    buffer: Tensor

    def persistent_load(self, pid: TensorSlot) -> Tensor:
        return pid.of(self.buffer)
