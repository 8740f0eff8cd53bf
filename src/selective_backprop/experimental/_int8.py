"""Experimental: score with a copy of the model in 8-bit integers, on a CPU.

Its passes take 0.53 of a forward where 0.40 was asked for, and on three small nets epochs became
longer with it. Knows the cheap scorers beside it, and none of them knows it.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeGuard, final

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.isolation import kept_random_streams
from selective_backprop._core.options import check_whole, settle
from selective_backprop._core.saved_state import Saved, loaded
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.experimental._approximate import (
    Both,
    Check,
    check_wrapper,
    model_of,
    start_checked,
)
from selective_backprop.experimental._model_copy import copy_model, overwrite, tensors_of
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    scorer_parts,
    start_scorer,
)
from selective_backprop.scorers._forward import Forward

HEADROOM = 1.1  # weights go on moving after a range was taken
STEPS = 255  # of an unsigned byte
UNNOTICED = 16  # scored batches after which weights are copied though nothing seems to change
REFUSED = (
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
NORMS: dict[type, type] = {nn.Conv2d: nn.BatchNorm2d, nn.Linear: nn.BatchNorm1d}
RELUS = (functional.relu, torch.relu, "relu", "relu_")


@final
@dataclass(frozen=True)
class Int8(AbstractScorer):
    """Experimental: let another scorer score with a copy of the model in 8-bit integers.

    Convolutions of images and linear layers compute in integers; all other layers compute as
    before. Weights are scaled by output channel. A calibration is a pass over one batch in full
    precision. It finds the range of each layer's inputs, which sets their scale. Calibrations are
    1, 2, 4, 8 and so on scored batches apart, because activations change fastest early in training.
    The next scored batch is a calibration, too, if a weight has changed more than
    `recalibrate_every` times since the last one. Copying and calibrating happen in the selection
    pass. Weights are copied whenever training has changed them. Torch does not count changes
    through `.data`; these are copied within 16 scored batches. The copy takes 1.25 times as much
    memory as the model's parameters.

    Args:
        scorer: the scorer that uses the copy. It must score in eval mode, because BatchNorm is
            merged into other layers.
        recalibrate_every: the most scored batches between two calibrations, and also the most
            changes of a weight; at least 1.
        check: when to compare the scores with exact ones; None for never. The batches of a check
            are spread over `recalibrate_every` scored batches.

    Raises:
        ConfigurationError: if a number is out of its range or the scorer cannot be wrapped. When
            training starts: if there is no model, it is not on a CPU, it cannot be copied or has
            nothing to quantise, or torch has no integer operations for this processor.

    Source:
        Jacob et al. 2018, arXiv:1712.05877, section 2, for inference in integers.
    """

    scorer: AbstractScorer
    recalibrate_every: int = 128
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self)
        settle(self, check_whole, "recalibrate_every")
        for part in scorer_parts(self.scorer):
            if isinstance(part, Forward) and part.training:
                raise ConfigurationError(
                    "Int8 makes BatchNorm a part of other layers, as it is in eval mode; write "
                    "Int8(Forward()) without training=True"
                )

    @property
    def needs(self) -> Needs:
        return replace(self.scorer.needs, plain_forward=False)

    def start(self, context: Context) -> RunningScorer:
        model = model_of(self, context)
        model = getattr(model, "_orig_mod", model)  # of what torch.compile returned
        device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
        if device.type != "cpu":
            raise ConfigurationError(
                f"Int8 computes on the CPU, and the model is on {device.type}; there, score with "
                f"{self.scorer!r} itself"
            )
        if not is_available():
            raise ConfigurationError(
                f"torch {torch.__version__} has no oneDNN operations in int8 on this processor; "
                f"score with {self.scorer!r} itself"
            )
        with kept_random_streams(context.device):  # a trace runs the model's code
            twin = Int8Copy(model)

        def begin(context: Context) -> Both:
            inner = start_scorer(self.scorer, replace(context, model=twin.model))
            exact = start_scorer(self.scorer, replace(context, checks=False))
            return _WithIntegers(inner, twin, self), exact

        return start_checked(
            self,
            context,
            begin,
            advice="Take a smaller recalibrate_every=",
            interval=int(self.recalibrate_every),
        )


class _WithIntegers(Delegating):
    def __init__(self, inner: RunningScorer, twin: "Int8Copy", spec: Int8) -> None:
        super().__init__(inner)
        self._twin = twin
        self._spec = spec
        self._scored = 0
        self._since = 0  # batches since the running calibration began
        self._gap = 0  # batches from it to the next
        self._before = 0  # changes of a weight since then that were counted elsewhere

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        spec, twin = self._spec, self._twin
        calibrating = self._since >= self._gap or self._moved > spec.recalibrate_every
        if calibrating:
            self._since, self._gap = 0, min(spec.recalibrate_every, max(1, 2 * self._gap))
            self._before = 0
            twin.mark()
        if calibrating or self._scored % UNNOTICED == 0 or twin.is_behind():
            twin.update()
            if calibrating:
                before = self.inner.state_dict()
                twin.observe()
                # For the ranges alone: scores of two precisions would not rank together.
                self.inner.score(batch, indices)
                self.inner.load_state_dict(before)
            twin.quantise()
        scores = self.inner.score(batch, indices)
        self._scored += 1
        self._since += 1
        return scores

    @property
    def _moved(self) -> int:
        """How often a weight has changed since the running calibration began."""
        return self._twin.changes() + self._before

    def state_dict(self) -> dict[str, Any]:
        return {
            "scored": self._scored,
            "since": self._since,
            "gap": self._gap,
            "moved": self._moved,
            "ranges": [[span.low, span.high] for span in self._twin.ranges],
            "scorer": self.inner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        *counts, spans, scorer = Saved(state).fields(
            "scored", "since", "gap", "moved", "ranges", "scorer"
        )
        scored, since, gap, moved = (each.whole() for each in counts)
        pairs = [each.items(2) for each in spans.items(len(self._twin.ranges))]
        ranges = [(low.number(-math.inf, 0.0), high.number(0.0, math.inf)) for low, high in pairs]
        with loaded([(self.inner, scorer)]):
            self._twin.mark()  # its weights are behind, so that they are copied at the next pass
            for span, (low, high) in zip(self._twin.ranges, ranges, strict=True):
                span.low, span.high = low, high
            self._scored, self._since, self._gap, self._before = scored, since, gap, moved


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


class Int8Copy:
    """A copy of a model in integers, brought up to date and calibrated when its methods are called.

    A BatchNorm that follows a layer, and a ReLU that follows that, are done within the layer, and
    bytes go straight from one layer to the next, where a symbolic trace of the model shows that
    nothing else reads what is between. A model that cannot be traced is quantised layer by layer.
    `model` is the copy, which computes in full precision until it is quantised.
    """

    def __init__(self, model: nn.Module) -> None:
        for name, module in model.named_modules():
            if isinstance(module, REFUSED):
                raise ConfigurationError(
                    f"{name or 'the model'} is a {type(module).__name__}, which has no int8 "
                    "form; Int8 is for convolutional and linear nets. Score with Forward() or "
                    "Pipelined(Forward(), every=...)"
                )
        self.model = copy_model(model)
        graph = _traced(model)
        self._original = model
        self.tensors = tensors_of(self.model)
        self._copied: dict[int, int] = {}
        self._marked: dict[int, int] = {}
        self._layers = _exchange(self.model)
        if not self._layers:
            raise ConfigurationError(
                f"{type(model).__name__} has no Conv2d or Linear of 32 bits that int8 could speed "
                "up; score with Forward()"
            )
        if graph is not None:
            _Fusion(self.model, graph).fuse()
        spans = (span for layer in self._layers for span in (layer.takes, layer.gives))
        self.ranges = list(dict.fromkeys(span for span in spans if span is not None))

    def update(self) -> None:
        """Give the copy the weights and buffers that the model has now."""
        overwrite(self.tensors, tensors_of(self._original))
        self._copied = _versions(self._original)

    def is_behind(self) -> bool:
        """Return whether the model's weights or buffers have changed since `update()`.

        Changes are counted by torch, which is not told of changes through `.data`.
        """
        return self._copied != _versions(self._original)

    def mark(self) -> None:
        """Count changes from now on."""
        self._marked = _versions(self._original)

    def changes(self) -> int:
        """Return how often training has written to a weight since `mark()`, to the most written."""
        versions = _versions(self._original).items()
        return max((n - self._marked.get(key, n) for key, n in versions), default=0)

    def observe(self) -> None:
        """Compute in full precision, and take the ranges anew."""
        for span in self.ranges:
            span.low, span.high = 0.0, 0.0
        for layer in self._layers:
            layer.observe()

    def quantise(self) -> None:
        """Compute in integers, with the weights and the ranges as they are."""
        for layer in self._layers:
            layer.quantise()


def _versions(model: nn.Module) -> dict[int, int]:
    """Return how often each parameter and buffer was written to, by its identity."""
    tensors = (*model.parameters(), *model.buffers())
    return {id(t): 0 if t.is_inference() else t._version for t in tensors}


def _traced(model: nn.Module) -> fx.Graph | None:
    """Return how values flow through a model; None where that depends on the values."""
    twin = copy_model(model).eval()  # tracing writes into what it traces
    try:
        return fx.Tracer().trace(twin)
    except Exception:  # what a forward does with symbols is anybody's guess
        return None


def _exchange(model: nn.Module) -> list[Int8Layer]:
    """Replace every layer that can compute in integers, wherever it is."""
    made: dict[nn.Module, Int8Layer] = {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if type(child) is nn.MaxPool2d and _side(child) > 1:
                parent._modules[name] = PatchMaximum(child, _side(child))
            elif _is_plain(child):
                made[child] = made.get(child) or Int8Layer(child)
                parent._modules[name] = made[child]
    return list(made.values())


def _is_plain(module: nn.Module | None) -> TypeGuard[nn.Conv2d | nn.Linear]:
    # exact types: a subclass may compute something else, and a parametrised layer is one
    if type(module) is nn.Conv2d:
        plain = module.padding_mode == "zeros" and not isinstance(module.padding, str)
        return plain and module.weight.dtype is torch.float32
    return type(module) is nn.Linear and module.weight.dtype is torch.float32


class _Fusion:
    """What a trace of a model, whose layers are in integers by now, allows to be done in them."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        named = dict(model.named_modules(remove_duplicate=False))
        called = [node for node in graph.nodes if node.op == "call_module"]
        self._model = model
        self._called = {node: named[str(node.target)] for node in called}
        count = Counter(self._called.values())
        self._once = {node: part for node, part in self._called.items() if count[part] == 1}

    def fuse(self) -> None:
        """Fold what follows each layer into it, then let bytes pass between layers."""
        layers = {n: part for n, part in self._once.items() if isinstance(part, Int8Layer)}
        ends = {node: self._fold(layer, node) for node, layer in layers.items()}
        for node, layer in layers.items():
            if layer.relu:
                self._connect(layer, ends[node])

    def _fold(self, layer: Int8Layer, node: fx.Node) -> fx.Node:
        """Return the node whose value the layer gives once BatchNorm and ReLU are in it."""
        follower = _only_user(node)
        norm = None if follower is None else self._once.get(follower)
        if (
            follower is not None
            and isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)
            and type(norm) is NORMS[type(layer.inner)]
            and norm.running_mean is not None
            and norm.running_mean.dtype is torch.float32
        ):
            self._drop(norm)
            layer.norm = norm
            node, follower = follower, _only_user(follower)
        if follower is not None and self._is_relu(follower):
            layer.relu = True  # a ReLU twice is a ReLU, so it may stay where it is
            if follower in self._once:
                self._drop(self._once[follower])
            node = follower
        return node

    def _is_relu(self, node: fx.Node) -> bool:
        if node in self._called:
            return type(self._called[node]) is nn.ReLU
        return node.target in RELUS

    def _connect(self, layer: Int8Layer, end: fx.Node) -> None:
        """Let a layer hand on bytes if all that read them, perhaps after pooling, take bytes."""
        readers: list[Int8Layer | PatchMaximum] = []
        waiting = list(end.users)
        while waiting:
            user = waiting.pop()
            module = self._once.get(user)
            if isinstance(module, PatchMaximum) and all(map(self._takes_bytes, user.users)):
                waiting.extend(user.users)
            elif isinstance(module, Int8Layer | PatchMaximum):
                readers.append(module)
            else:
                return
        if readers:
            layer.gives = Range()
            for reader in readers:
                reader.takes = layer.gives

    def _takes_bytes(self, node: fx.Node) -> bool:
        return isinstance(self._once.get(node), Int8Layer | PatchMaximum)

    def _drop(self, module: nn.Module) -> None:
        for parent in list(self._model.modules()):
            for name, child in parent._modules.items():
                if child is module:
                    parent._modules[name] = nn.Identity()


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _side(pool: nn.MaxPool2d) -> int:
    """Return the side of the patches of a pooling whose patches do not overlap, else 0."""
    sizes = {pool.kernel_size, pool.stride} if isinstance(pool.kernel_size, int) else set()
    plain = pool.padding in (0, (0, 0)) and pool.dilation in (1, (1, 1))
    whole = not pool.ceil_mode and not pool.return_indices
    return int(pool.kernel_size) if len(sizes) == 1 and plain and whole else 0  # ty: ignore
