"""A copy of a model whose convolutions and linear layers compute in 8-bit integers."""

from collections.abc import Callable

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from selective_backprop._core.errors import ConfigurationError
from selective_backprop.scorers.cheap._model_copy import copy_model, overwrite, tensors_of
from selective_backprop.scorers.cheap.int8._int8_layers import (
    Int8Conv2d,
    Int8Layer,
    Int8Linear,
    PatchMaximum,
    Range,
)

REFUSED = (
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
NORMS = {nn.Conv2d: nn.BatchNorm2d, nn.Linear: nn.BatchNorm1d}
RELUS = (functional.relu, torch.relu, "relu", "relu_")


class Int8Copy:
    """A copy of a model in integers, brought up to date and calibrated when its methods are called.

    A BatchNorm that follows a layer, and a ReLU that follows that, are done within the layer, and
    bytes go straight from one layer to the next, where a symbolic trace of the model shows that
    nothing else reads what is between. A model that cannot be traced is quantised layer by layer.

    Args:
        model: in training, on the CPU; it is only read.

    Attributes:
        model: the copy, which computes in full precision until it is quantised.

    Raises:
        ConfigurationError: if the model cannot be copied, has a part that reads the weights of
            its layers past them, or has no layer of 32 bits that could be quantised.
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
        self._tensors = tensors_of(self.model)
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
        self._ranges = list(dict.fromkeys(span for span in spans if span is not None))

    def update(self) -> None:
        """Give the copy the weights and buffers that the model has now.

        Raises:
            LoaderError: if the model is no longer made of the same parts.
        """
        overwrite(self._tensors, tensors_of(self._original))
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
        known = self._marked
        return max(
            (n - known.get(key, n) for key, n in _versions(self._original).items()), default=0
        )

    def observe(self, *, anew: bool) -> None:
        """Compute in full precision and take note of ranges, with the weights as they are.

        Args:
            anew: whether to forget the ranges that were seen before.
        """
        for span in self._ranges if anew else ():
            span.forget()
        for layer in self._layers:
            layer.observe()

    def quantise(self) -> None:
        """Compute in integers, with the weights and the ranges as they are."""
        for layer in self._layers:
            layer.quantise()

    def ranges(self) -> list[tuple[float, float]]:
        """Return the lowest and highest value of each range."""
        return [(span.low, span.high) for span in self._ranges]

    def weights(self) -> dict[str, Tensor]:
        """Return a copy of the copy's weights and buffers."""
        return {name: tensor.clone() for name, tensor in self._tensors.items()}

    def resume(self, weights: dict[str, Tensor], ranges: list[tuple[float, float]]) -> None:
        """Go on from `weights()` and `ranges()`, in integers."""
        overwrite(self._tensors, weights)
        for span, (low, high) in zip(self._ranges, ranges, strict=True):
            span.low, span.high = low, high
        self.quantise()


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
            if child is None:
                continue
            if type(child) is nn.MaxPool2d and _side(child) > 1:
                parent._modules[name] = PatchMaximum(child, _side(child))
            elif (make := _integer_form(child)) is not None:
                made[child] = made.get(child) or make(child)
                parent._modules[name] = made[child]
    return list(made.values())


def _integer_form(module: nn.Module) -> Callable[..., Int8Layer] | None:
    # exact types: a subclass may compute something else, and a parametrised layer is one
    if type(module) is nn.Linear:
        form: Callable[..., Int8Layer] = Int8Linear
    elif (
        type(module) is nn.Conv2d
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    ):
        form = Int8Conv2d
    else:
        return None
    return form if module.weight.dtype is torch.float32 else None


class _Fusion:
    """What a trace allows to be done within layers."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        self._model = model
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._nodes = list(graph.nodes)
        self._calls: dict[nn.Module, int] = {}
        for node in self._nodes:
            module = self._module(node)
            if module is not None:
                self._calls[module] = self._calls.get(module, 0) + 1

    def fuse(self) -> None:
        """Fold what follows each layer into it, then let bytes pass between layers."""
        ends = {}
        for node in self._nodes:
            layer = self._layer(node)
            if layer is not None and self._calls[layer] == 1:
                ends[node] = self._fold(layer, node)
        for node, end in ends.items():
            layer = self._layer(node)
            if layer is not None and layer.relu:
                self._connect(layer, end)

    def _fold(self, layer: Int8Layer, node: fx.Node) -> fx.Node:
        """Return the node whose value the layer gives once BatchNorm and ReLU are in it."""
        follower = self._only_user(node)
        norm = None if follower is None else self._module(follower)
        if follower is not None and isinstance(norm, _BatchNorm) and self._folds(layer, norm):
            self._replace(norm, nn.Identity())
            layer.norm = norm
            node, follower = follower, self._only_user(follower)
        if follower is not None and self._is_relu(follower):
            layer.relu = True  # a ReLU twice is a ReLU, so it may stay where it is
            relu = self._module(follower)
            if relu is not None and self._calls[relu] == 1:
                self._replace(relu, nn.Identity())
            node = follower
        return node

    def _folds(self, layer: Int8Layer, norm: _BatchNorm) -> bool:
        return (
            type(norm) is NORMS[type(layer.inner)]
            and self._calls[norm] == 1
            and norm.running_mean is not None
            and norm.running_mean.dtype is torch.float32
        )

    def _connect(self, layer: Int8Layer, end: fx.Node) -> None:
        """Let a layer hand on bytes if all that read them, perhaps after pooling, take bytes."""
        readers: list[Int8Layer | PatchMaximum] = []
        waiting = list(end.users)
        while waiting:
            user = waiting.pop()
            module = self._module(user)
            if isinstance(module, Int8Layer) and self._calls[module] == 1:
                readers.append(module)
            elif isinstance(module, PatchMaximum) and self._calls[module] == 1:
                if all(self._takes_bytes(reader) for reader in user.users):
                    waiting.extend(user.users)
                else:
                    readers.append(module)
            else:
                return
        if not readers:
            return
        layer.gives = Range()
        for reader in readers:
            reader.takes = layer.gives

    def _takes_bytes(self, node: fx.Node) -> bool:
        module = self._module(node)
        if module is None or self._calls[module] != 1:
            return False
        return isinstance(module, Int8Layer | PatchMaximum)

    def _module(self, node: fx.Node) -> nn.Module | None:
        return self._modules.get(str(node.target)) if node.op == "call_module" else None

    def _layer(self, node: fx.Node) -> Int8Layer | None:
        module = self._module(node)
        return module if isinstance(module, Int8Layer) else None

    @staticmethod
    def _only_user(node: fx.Node) -> fx.Node | None:
        users = list(node.users)
        return users[0] if len(users) == 1 else None

    def _is_relu(self, node: fx.Node) -> bool:
        return type(self._module(node)) is nn.ReLU or node.target in RELUS

    def _replace(self, module: nn.Module, other: nn.Module) -> None:
        for parent in list(self._model.modules()):
            for name, child in parent._modules.items():
                if child is module and parent is not other:
                    parent._modules[name] = other


def _side(pool: nn.MaxPool2d) -> int:
    """Return the side of the patches of a pooling whose patches do not overlap, else 0."""
    sizes = {pool.kernel_size, pool.stride} if isinstance(pool.kernel_size, int) else set()
    plain = pool.padding in (0, (0, 0)) and pool.dilation in (1, (1, 1))
    whole = not pool.ceil_mode and not pool.return_indices
    return int(pool.kernel_size) if len(sizes) == 1 and plain and whole else 0  # ty: ignore
