"""Convolutional and linear layers that compute in 8-bit integers, and what ranges they cover."""

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, Generic, TypeVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

HEADROOM = 1.1  # weights go on moving after a range was taken
STEPS = 255  # of an unsigned byte
INNER = TypeVar("INNER", nn.Conv2d, nn.Linear)


class Range:
    """The values that a tensor takes, and with it the step of its integers.

    Attributes:
        low: the lowest value seen, at most 0.
        high: the highest, at least 0.
    """

    def __init__(self) -> None:
        self.low, self.high = 0.0, 0.0

    def cover(self, values: Tensor) -> None:
        """Widen the range to what these values are."""
        if values.numel():
            low, high = torch.aminmax(values.detach())
            self.low, self.high = min(self.low, float(low)), max(self.high, float(high))

    @property
    def scale(self) -> float:
        """What one step of the integers is worth."""
        width = HEADROOM * (self.high - self.low)
        return width / STEPS if 0.0 < width < float("inf") else 1.0

    @property
    def zero(self) -> int:
        """The integer that stands for 0."""
        return min(STEPS, max(0, round(-HEADROOM * self.low / self.scale)))


def to_bytes(values: Tensor, scale: float, zero: int) -> Tensor:
    """Return the nearest integers in [0, 255] as bytes.

    By way of signed bytes, since a conversion to unsigned ones takes six times as long on CPUs.
    """
    steps = values.float().mul(1.0 / scale).add_(zero - 128).round_().clamp_(-128, 127)
    return steps.to(torch.int8).view(torch.uint8).bitwise_xor_(128)


class Int8Layer(nn.Module, ABC, Generic[INNER]):
    """A layer in integers, with a following BatchNorm folded in and perhaps a ReLU.

    It computes in full precision while `observing`, and takes note of its input's range.

    Args:
        inner: the layer in full precision, which keeps the weights.

    Attributes:
        takes: the range of its input, which layers that read the same tensor share.
        gives: the range in which it hands on bytes to other such layers; None for float.
        norm: a BatchNorm in eval mode that follows and is done here.
        relu: whether a ReLU that follows is done here.
        observing: whether to compute in full precision.
    """

    def __init__(self, inner: INNER) -> None:
        super().__init__()
        self.inner = inner
        self.takes = Range()
        self.gives: Range | None = None
        self.norm: _BatchNorm | None = None
        self.relu = False
        self.observing = True

    @property
    def weight(self) -> Tensor:  # this and `bias` are for code that asks a layer for them
        return self.inner.weight

    @property
    def bias(self) -> Tensor | None:
        return self.inner.bias

    def fold(self) -> tuple[Tensor, Tensor | None]:
        """Return weights and bias with the BatchNorm in them."""
        weight, bias, norm = self.inner.weight, self.inner.bias, self.norm
        if norm is None or norm.running_mean is None or norm.running_var is None:
            return weight, bias
        factor = torch.rsqrt(norm.running_var + norm.eps)
        factor = factor if norm.weight is None else factor * norm.weight
        shift = norm.running_mean if bias is None else norm.running_mean - bias
        folded = -shift * factor
        shape = (-1, *[1] * (weight.dim() - 1))
        return weight * factor.view(shape), folded if norm.bias is None else folded + norm.bias

    @torch.no_grad()
    def observe(self) -> None:
        """Compute in full precision from now on, with the weights as they are."""
        self._folded = self.fold()
        self.observing = True

    @torch.no_grad()
    def quantise(self) -> None:
        """Compute in integers from now on, with the weights and ranges as they are."""
        weight, self._bias = self.fold()
        most = weight_limit()
        # a channel of zeros alone has no scale, and needs none
        self._scales = weight.flatten(1).abs().amax(1).div(most).clamp(min=1e-30)
        shape = (-1, *[1] * (weight.dim() - 1))
        integers = (weight / self._scales.view(shape)).round_().to(torch.int8)
        self._zeros = torch.zeros(len(weight), dtype=torch.int64)
        self._packed = self.pack(integers, self._scales)
        self._in = self.takes.scale, self.takes.zero
        self._out = 1.0 if self.gives is None else self.gives.scale
        self._type = torch.float32 if self.gives is None else torch.uint8
        self.observing = False

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the layer gives, in bytes if `gives` says so."""
        if not self.observing:
            given = inputs if inputs.dtype is torch.uint8 else to_bytes(inputs, *self._in)
            return self.compute(given, "relu" if self.relu else "none")
        self.takes.cover(inputs)
        outputs = self.compute_exactly(inputs, *self._folded)
        return outputs.relu() if self.relu else outputs

    @abstractmethod
    def pack(self, integers: Tensor, scales: Tensor) -> Tensor:
        """Return integer weights in the order that the processor wants."""

    @abstractmethod
    def compute(self, given: Tensor, activation: str) -> Tensor:
        """Return the output for bytes."""

    @abstractmethod
    def compute_exactly(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the output in full precision."""


@final
class Int8Conv2d(Int8Layer[nn.Conv2d]):
    """A convolution of images."""

    @property
    def _geometry(self) -> tuple[Any, ...]:
        inner = self.inner
        return list(inner.stride), list(inner.padding), list(inner.dilation), inner.groups

    def pack(self, integers: Tensor, scales: Tensor) -> Tensor:
        taken = self.takes.scale, self.takes.zero
        return torch.ops.onednn.qconv_prepack(integers, scales, *taken, *self._geometry, None)

    def compute(self, given: Tensor, activation: str) -> Tensor:
        return torch.ops.onednn.qconv2d_pointwise(
            *(given, *self._in, self._packed, self._scales, self._zeros, self._bias),
            *(*self._geometry, self._out, 0, self._type, activation, [], ""),
        )

    def compute_exactly(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.conv2d(inputs, weight, bias, *self._geometry)


@final
class Int8Linear(Int8Layer[nn.Linear]):
    """A linear layer."""

    def pack(self, integers: Tensor, scales: Tensor) -> Tensor:
        return torch.ops.onednn.qlinear_prepack(integers, None)

    def compute(self, given: Tensor, activation: str) -> Tensor:
        outputs = torch.ops.onednn.qlinear_pointwise(
            *(given.flatten(0, -2), *self._in, self._packed, self._scales, self._zeros),
            *(self._bias, self._out, 0, self._type, activation, [], ""),
        )
        return outputs.unflatten(0, given.shape[:-1]) if given.dim() > 2 else outputs

    def compute_exactly(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(inputs, weight, bias)


@final
class PatchMaximum(nn.Module):
    """A maximum over patches that do not overlap, of bytes as well as of floats.

    Torch's own takes no images of bytes with more than 255 values, and slices of floats are slow.

    Args:
        inner: the pooling of floats.
        side: of a patch, in both directions.

    Attributes:
        takes: the range of the bytes that come, where floats are to be handed on; else None.
    """

    def __init__(self, inner: nn.MaxPool2d, side: int) -> None:
        super().__init__()
        self.inner = inner
        self.side = side
        self.takes: Range | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the maximum of each whole patch."""
        if inputs.dtype is not torch.uint8:
            outputs = self.inner(inputs)
            if self.takes is not None:
                self.takes.cover(outputs)
            return outputs
        side = self.side
        height, width = (size - size % side for size in inputs.shape[-2:])
        # rows first: they lie together in memory, channels last
        found = inputs[..., 0:height:side, :width]
        for down in range(1, side):
            found = torch.maximum(found, inputs[..., down:height:side, :width])
        rows, found = found, found[..., 0:width:side]
        for right in range(1, side):
            found = torch.maximum(found, rows[..., right:width:side])
        # what a ReLU gave has its zero at 0
        return found if self.takes is None else found.float().mul_(self.takes.scale)


def is_available() -> bool:
    """Return whether this build of torch has the operations, and the processor runs them."""
    return weight_limit() > 0


@cache
def weight_limit() -> int:
    """Return the largest integer that a weight may be, 0 where integers cannot be computed with.

    Processors without VNNI add pairs of products in 16 bits, where two of 255 x 127 are cut off
    without a word, so weights there are at most 63. A product that would be cut off tells.
    """
    if not torch.backends.mkldnn.is_available():
        return 0
    for most in (127, 63):
        layer = torch.full((16, 64), most, dtype=torch.int8)
        scales, zeros = torch.ones(16), torch.zeros(16, dtype=torch.int64)
        given = torch.full((4, 64), STEPS, dtype=torch.uint8)
        try:
            packed = torch.ops.onednn.qlinear_prepack(layer, None)
            found = torch.ops.onednn.qlinear_pointwise(
                *(given, 1.0, 0, packed, scales, zeros, None),
                *(1.0, 0, torch.float32, "none", [], ""),
            )
        except (AttributeError, RuntimeError, TypeError):
            return 0
        if bool((found == STEPS * most * 64).all()):
            return most
    return 0
