"""Fingerprints: a few numbers per row that tell whether two tensors hold the same rows."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

PROJECTIONS = 4  # enough that hardly any large difference is small in all of them
LONGEST = 2**16  # most elements that one projection spans; bounds the memory of directions
SHORTEST = 16  # span below which projecting costs more than copying first


class Reading(NamedTuple):
    """The order in which to read a tensor's elements without copying them."""

    order: tuple[int, ...]  # its axes from the slowest to the fastest in memory
    span: int  # how many elements of the fastest axes are projected at once


def plan_reading(tensor: Tensor) -> Reading | None:
    """Return how to read a tensor whose axis 0 counts rows.

    None if projections cannot tell its rows apart: it is not a plain dense tensor of
    floating-point numbers, has only the rows' axis, has no elements, or has too long rows.
    """
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    if not plain or not tensor.is_floating_point() or tensor.ndim < 2 or not tensor.numel():
        return None
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.ndim), key=lambda axis: (-strides[axis], axis)))
    width = tensor.numel() // tensor.shape[0]
    span = 1
    for axis in reversed(order):
        wider = span * tensor.shape[axis]
        if axis == 0 or wider > LONGEST or (tensor.shape[axis] > 1 and strides[axis] != span):
            break
        span = wider
    if span < min(SHORTEST, width):
        order, span = (0, *(axis for axis in order if axis)), width
    return Reading(order, span) if max(span, width // span) <= LONGEST else None


class Fingerprints:
    """Project rows on random directions.

    Rows that agree in all projections are almost surely equal to within rounding, whatever they
    hold, since the directions do not depend on them.
    """

    def __init__(self) -> None:
        self._directions: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._last: tuple[Tensor, int, Reading, Tensor] | None = None

    def of(self, tensor: Tensor, reading: Reading) -> Tensor:
        """Return the projections `[row, projection]` of a tensor's rows, which are its axis 0.

        Projections of 16-bit numbers are in float32, others in the tensor's own type. The last
        tensor's are remembered, since queries, keys and values are often made of one tensor.
        """
        if self._last is not None:
            last, version, how, known = self._last
            if how == reading and same_memory(last, tensor) and tensor._version == version:
                return known
        found = self._project(tensor, reading)
        self._last = (tensor, tensor._version, reading, found)
        return found

    def forget(self) -> None:
        """Release the last tensor and its projections."""
        self._last = None

    def _project(self, tensor: Tensor, reading: Reading) -> Tensor:
        order, span = reading
        half = tensor.dtype in (torch.float16, torch.bfloat16)
        read = (tensor.float() if half else tensor).permute(order)
        across, along = self._directions_for(read)
        with full_precision(tensor.device):
            # One direction per row of memory: the product takes a fifth of the time.
            projected = read.reshape(-1, span) @ along[:, :span].t()
        left = list(read.shape)
        while span > 1:
            span //= left.pop()
        # The rows' axis and the slow axes are left; entries along the slow ones get weights.
        place = order.index(0)
        before, after = math.prod(left[:place]), math.prod(left[place + 1 :])
        if before * after == 1:
            return projected
        projected = projected.view(before, tensor.shape[0], after, PROJECTIONS)
        weights = across[:, : before * after].t().reshape(before, 1, after, PROJECTIONS)
        return (projected * weights).sum((0, 2))

    def _directions_for(self, tensor: Tensor) -> Tensor:
        key = tensor.dtype, tensor.device
        if key not in self._directions:
            generator = torch.Generator().manual_seed(0)
            both = torch.randn(2, PROJECTIONS, LONGEST, generator=generator, dtype=torch.float64)
            self._directions[key] = both.to(tensor.device, tensor.dtype)
        return self._directions[key]


def same_rows(one: Tensor, other: Tensor, width: int) -> bool:
    """Return whether projections of rows of `width` elements agree to within rounding.

    Waits for the device.
    """
    # On a CPU equal rows agree in every bit; elsewhere sums may be split in other ways.
    rounding = torch.finfo(one.dtype).eps * (4.0 + math.sqrt(width) / 8.0)
    apart, size = (one - other).square().sum(1), one.square().sum(1)
    return bool((apart <= size * rounding**2).all())  # False for NaN


@contextmanager
def full_precision(device: torch.device) -> Generator[None]:
    """Multiply float32 matrices in full precision in the body, even if the user allows less."""
    backend = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    products = getattr(backend, "matmul", None)
    if hasattr(products, "fp32_precision"):
        before, full = products.fp32_precision, "ieee"
        choose = partial(setattr, products, "fp32_precision")
    else:  # torch 2.8
        before, full = torch.get_float32_matmul_precision(), "highest"
        choose = torch.set_float32_matmul_precision
    if before != full:
        choose(full)
    try:
        yield
    finally:
        if before != full:
            choose(before)


def same_memory(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are views of the same elements in the same order."""
    return one is other or (
        one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.dtype == other.dtype
        and one.device == other.device
    )
