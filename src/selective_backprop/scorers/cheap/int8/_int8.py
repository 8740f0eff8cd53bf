"""Score in 8-bit integers: what convolutional and linear nets compute fastest on a CPU."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, TypeGuard, final

import torch
from torch import fx, nn
from torch.nn import functional

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.isolation import kept_random_streams
from selective_backprop._core.options import check_whole, settle
from selective_backprop._core.saved_state import Saved, loaded
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    scorer_parts,
)
from selective_backprop.scorers._forward import Forward
from selective_backprop.scorers.cheap._approximate import (
    Check,
    check_wrapper,
    model_of,
    start_wrapped,
)
from selective_backprop.scorers.cheap._wrappers import (
    Compiled,
    cloned,
    copy_model,
    overwrite,
    refuse_synced,
    tensors_of,
)
from selective_backprop.scorers.cheap.int8._int8_layers import (
    Int8Layer,
    PatchMaximum,
    Range,
    is_available,
)

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
    """Experimental: score as the scorer inside does, with a copy of the model in 8-bit integers.

    Convolutions of images and linear layers compute in integers, all else as before. Each output
    channel's weights have a scale of their own, inputs of a layer the range that was seen in the
    last calibration. Calibrations come 1, 2, 4, 8 and so on scored batches apart, since a young
    model's activations move fastest, and after training that went on unscored. Copying and
    calibrating are part of the selection pass, and a calibration costs a pass in full precision.
    The copy takes as much memory as the model's parameters, and a quarter more; saved states
    hold it too.

    Args:
        scorer: scores with the copy; in eval mode, since BatchNorm becomes part of other layers.
        every: scored batches from one copy of the weights to the next, at least 1; None copies
            them whenever training has changed them, and saves that cost where several batches
            are scored between two steps. A change that torch keeps no count of, as through
            `.data`, is then noticed within 16 scored batches.
        recalibrate_every: scored batches from one calibration to the next, at least 1, once
            they are no longer closer together; or as many changes of a weight.
        calibration_batches: batches whose ranges a calibration unites, at least 1 and at most
            `recalibrate_every`.
        check: when to compare the scores with those of the model as it is; None for never. The
            batches of a check are spread from one calibration to the next.

    Raises:
        ConfigurationError: if a number is out of its range or the scorer cannot be wrapped; at the
            start, if there is no model, it is not on a CPU, torch has no operations in integers
            here, or the model cannot be copied or has nothing to quantise.

    Source:
        Jacob et al. 2018, arXiv:1712.05877, section 2, for inference in integers.
    """

    scorer: AbstractScorer
    every: int | None = None
    recalibrate_every: int = 128
    calibration_batches: int = 1
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self, other_model=True)
        settle(self, check_whole, "every", optional=True)
        settle(self, check_whole, "recalibrate_every", "calibration_batches")
        if self.calibration_batches > self.recalibrate_every:
            raise ConfigurationError(
                f"calibration_batches={self.calibration_batches} of every recalibrate_every="
                f"{self.recalibrate_every} scored batches: there are no more than those"
            )
        refuse_synced(self)
        for part in scorer_parts(self.scorer):
            if isinstance(part, Forward) and part.training:
                raise ConfigurationError(
                    "Int8 makes BatchNorm a part of other layers, as it is in eval mode; write "
                    "Int8(Forward()) without training=True"
                )
            if isinstance(part, Compiled):
                raise ConfigurationError(
                    f"{part!r} would compile the copy anew whenever it is made; wrap what is "
                    "inside it, such as Int8(Forward())"
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
                "Compiled(LowPrecision(Forward()))"
            )
        if not is_available():
            raise ConfigurationError(
                f"torch {torch.__version__} has no oneDNN operations in int8 on this processor; "
                f"score with {self.scorer!r} itself"
            )
        with kept_random_streams(context.device):  # a trace runs the model's code
            twin = Int8Copy(model)
        return start_wrapped(
            self,
            context,
            lambda inner: _WithIntegers(inner, twin, self),
            advice="Take a smaller recalibrate_every=, more calibration_batches= or every=None",
            interval=int(self.recalibrate_every),
            model=twin.model,
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
        if self._since >= self._gap or self._moved > spec.recalibrate_every:
            gap = max(spec.calibration_batches, 2 * self._gap)
            self._since, self._gap = 0, min(spec.recalibrate_every, gap)
            self._before = 0
            twin.mark()
        calibrating = self._since < spec.calibration_batches
        if calibrating or self._copies():
            twin.update()
            if calibrating:
                before = self.inner.state_dict()
                twin.observe(anew=self._since == 0)
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

    def _copies(self) -> bool:
        if self._spec.every is not None:
            return self._scored % self._spec.every == 0
        return self._scored % UNNOTICED == 0 or self._twin.is_behind()

    def state_dict(self) -> dict[str, Any]:
        return {
            "scored": self._scored,
            "since": self._since,
            "gap": self._gap,
            "moved": self._moved,
            "copy": cloned(self._twin.tensors),
            "ranges": [[span.low, span.high] for span in self._twin.ranges],
            "scorer": self.inner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        *counts, weights, spans, scorer = Saved(state).fields(
            "scored", "since", "gap", "moved", "copy", "ranges", "scorer"
        )
        scored, since, gap, moved = (each.whole() for each in counts)
        tensors = weights.tensors(self._twin.tensors)
        pairs = [each.items(2) for each in spans.items(len(self._twin.ranges))]
        ranges = [(low.number(-math.inf, 0.0), high.number(0.0, math.inf)) for low, high in pairs]
        with loaded([(self.inner, scorer)]):
            self._twin.mark()
            overwrite(self._twin.tensors, tensors)
            for span, (low, high) in zip(self._twin.ranges, ranges, strict=True):
                span.low, span.high = low, high
            self._twin.quantise()
            self._scored, self._since, self._gap, self._before = scored, since, gap, moved


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
                    "Synced(Forward(), every=...)"
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

        Changes are counted by torch, which is not told of those through `.data`.
        """
        return self._copied != _versions(self._original)

    def mark(self) -> None:
        """Count changes from now on."""
        self._marked = _versions(self._original)

    def changes(self) -> int:
        """Return how often training has written to a weight since `mark()`, to the most written."""
        versions = _versions(self._original).items()
        return max((n - self._marked.get(key, n) for key, n in versions), default=0)

    def observe(self, *, anew: bool) -> None:
        """Compute in full precision and widen the ranges, from nothing if `anew`."""
        for span in self.ranges if anew else ():
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
    """Put layers in integers in the place of those that can be, wherever they are."""
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
