"""Convolutional and linear layers that compute in 8-bit integers, and what ranges they cover."""

from functools import cache
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

HEADROOM = 1.1  # weights go on moving after a range was taken
STEPS = 255  # of an unsigned byte


class Range:
    """The values that a tensor takes, and with it the step of its integers."""

    def __init__(self) -> None:
        self.low, self.high = 0.0, 0.0  # 0 is always within

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


@final
class Int8Layer(nn.Module):
    """A layer in integers, with a following BatchNorm in eval mode and perhaps a ReLU done in it.

    `inner` keeps the weights in full precision. While `observing`, the layer computes in full
    precision and takes note of its input's range.

    Attributes:
        takes: the range of its input, which layers that read the same tensor share.
        gives: the range in which it hands on bytes to other such layers; None for float.
    """

    def __init__(self, inner: nn.Conv2d | nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self._geometry: tuple[Any, ...] = ()
        if isinstance(inner, nn.Conv2d):
            geometry = inner.stride, inner.padding, inner.dilation
            self._geometry = (*map(list, geometry), inner.groups)
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
        self._in = self.takes.scale, self.takes.zero
        # The weights in the order that the processor wants.
        if self._geometry:
            self._packed = torch.ops.onednn.qconv_prepack(
                integers, self._scales, *self._in, *self._geometry, None
            )
        else:
            self._packed = torch.ops.onednn.qlinear_prepack(integers, None)
        self._out = 1.0 if self.gives is None else self.gives.scale
        self._type = torch.float32 if self.gives is None else torch.uint8
        self.observing = False

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the layer gives, in bytes if `gives` says so."""
        if self.observing:
            self.takes.cover(inputs)
            compute = functional.conv2d if self._geometry else functional.linear
            outputs = compute(inputs, *self._folded, *self._geometry)
            return outputs.relu() if self.relu else outputs
        given = inputs if inputs.dtype is torch.uint8 else to_bytes(inputs, *self._in)
        operands = (*self._in, self._packed, self._scales, self._zeros, self._bias)
        result = (self._out, 0, self._type, "relu" if self.relu else "none", [], "")
        if self._geometry:
            return torch.ops.onednn.qconv2d_pointwise(given, *operands, *self._geometry, *result)
        outputs = torch.ops.onednn.qlinear_pointwise(given.flatten(0, -2), *operands, *result)
        return outputs.unflatten(0, given.shape[:-1]) if given.dim() > 2 else outputs


@final
class PatchMaximum(nn.Module):
    """A maximum over patches that do not overlap, of bytes as well as of floats.

    Torch's own takes no images of bytes with more than 255 values, and slices of floats are slow.

    `takes` is the range of the bytes that come, where floats are to be handed on.
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
