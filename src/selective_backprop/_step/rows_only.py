"""Run modules on some positions only, if they treat each position by itself."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from selective_backprop._batches.structure import move_tensor
from selective_backprop._core.errors import BatchError, ConfigurationError
from selective_backprop._step.latest import places_of

# Layers that mix positions or rows of a batch: leaving some out would change the others.
MIXING = (
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._BatchNorm,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)


@contextmanager
def rows_only(kept: Tensor, *modules: nn.Module) -> Generator[None]:
    """Run modules on the kept positions only, while the context is open.

    Use it for modules in the last block of a transformer: the output projection of the attention,
    the norms after the attention, and the MLP. Do not pass a module of an earlier block, because
    later blocks attend to all positions. Each module gets only the kept positions, as a tensor
    `[1, kept, feature]`. Its output is 0 at all other positions, so a residual connection leaves
    them unchanged. At the kept positions, values and gradients are the same as without `rows_only`.

    The modules get hooks, which are removed when the context ends. With gradient checkpointing,
    call `backward()` inside the context, because it runs the block again. Dropout inside the
    modules draws random numbers for the kept positions only.

    Args:
        kept: a mask `[row, token]`, True at the positions to run on, usually from
            `TokenLoss.choose`. If the mask is on the GPU, the CPU waits for it once. The
            `TokenLoss` that made the mask does not wait again.
        modules: each module takes and returns one or several tensors `[row, token, feature]`, and
            treats each position by itself.

    Raises:
        ConfigurationError: if `kept` is not a mask, or a module holds a layer that mixes positions.
        BatchError: when a module runs, if it is given no tensor `[row, token, feature]` with as
            many rows and tokens as the mask, or returns a tensor that is not `[1, kept, feature]`.

    Example:
        >>> import torch, selective_backprop as sb
        >>> mlp, hidden = torch.nn.Linear(4, 4), torch.ones(2, 3, 4)
        >>> kept = torch.tensor([[True, False, False], [False, True, True]])
        >>> with sb.rows_only(kept, mlp):
        ...     hidden = hidden + mlp(hidden)
        >>> (hidden != 1).all(-1).equal(kept)
        True
    """
    if kept.dtype != torch.bool or not kept.ndim:
        raise ConfigurationError(
            f"kept is {kept.dtype} of shape {tuple(kept.shape)}; a mask of Booleans [row, token] "
            "is needed, as TokenLoss.choose(labels) returns"
        )
    for module in modules:
        for name, part in module.named_modules():
            if isinstance(part, MIXING):
                raise ConfigurationError(
                    f"{type(module).__name__} holds {type(part).__name__} ({name or 'itself'}), "
                    "which mixes positions or rows. Pass modules that treat each position by "
                    "itself, such as the MLP of the last block"
                )
    rows = _Rows(kept)
    with ExitStack() as hooks:
        for module in modules:
            hooks.callback(module.register_forward_pre_hook(rows.gather, with_kwargs=True).remove)
            hooks.callback(module.register_forward_hook(rows.scatter).remove)
        try:
            yield
        finally:
            rows.open = False  # a compiled module may still call hooks after their removal


class _Rows:
    """Gathers tensors from the kept positions of a batch, and scatters them back."""

    def __init__(self, kept: Tensor) -> None:
        self._shape, self._places = kept.shape, places_of(kept)
        self.open = True

    def gather(self, module: nn.Module, inputs: Any, options: Any) -> Any:
        if not self.open:
            return None
        found = False

        def take(tensor: Tensor) -> Tensor:
            nonlocal found
            depth = len(self._shape)
            if tensor.shape[:depth] != self._shape or tensor.ndim == depth:
                return tensor
            found = True
            self._places = move_tensor(self._places, tensor.device)
            return tensor.flatten(0, depth - 1)[self._places].unsqueeze(0)

        gathered = _each(inputs, take), _each(options, take)
        if not found:
            raise BatchError(
                f"{type(module).__name__} got no tensor of shape {(*self._shape, 'features')}. "
                "rows_only needs modules whose inputs have the mask's rows and tokens"
            )
        return gathered

    def scatter(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        if not self.open:
            return None

        def put(tensor: Tensor) -> Tensor:
            if tensor.ndim < 3 or tensor.shape[:2] != (1, len(self._places)):
                raise BatchError(
                    f"{type(module).__name__} returned shape {tuple(tensor.shape)} for "
                    f"{len(self._places)} positions. rows_only needs modules that return "
                    "[row, token, feature]"
                )
            whole = tensor.new_zeros(self._shape.numel(), *tensor.shape[2:])
            return whole.index_copy(0, self._places, tensor[0]).unflatten(0, self._shape)

        return _each(output, put)


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return `value` with `change` applied to its tensors; it may be a tensor or a container."""
    match value:
        case Tensor():
            return change(value)
        case tuple() | list():
            return type(value)(_each(each, change) for each in value)
        case dict():
            return {name: _each(each, change) for name, each in value.items()}
    return value
