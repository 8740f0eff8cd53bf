"""Operations worth reusing, and how rows of their results depend on rows of their inputs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from selective_backprop._core.errors import ConfigurationError


@dataclass(frozen=True)
class Operation:
    """Row `i` of the result depends on row `i` of some arguments, and on all of the others.

    Attributes:
        rows: positions of the arguments whose axis 0 counts rows.
        products: returns how many multiplications a call takes.
        results: how many of the leading results have the same axis 0.
        wanted: position of the flag that asks for everything a backward pass needs.
        into: the variant of an operation of one result that writes to a given contiguous tensor,
            which has the shape of the rows but the last argument's last axis.
    """

    rows: tuple[int, ...]
    products: Callable[[tuple[Any, ...]], float]
    results: int = 1
    wanted: int | None = None
    into: OpOverload | None = None

    def pays(self, args: tuple[Any, ...]) -> bool:
        """Return whether a call does enough work per input element for reuse to save time."""
        inputs = sum(args[place].numel() for place in self.rows)
        return self.products(args) >= WORTHWHILE * inputs


# Multiplications per element read. A fingerprint takes about ten for every candidate, and reuse
# saves work only for the selected rows; below 60 nothing is gained at a rate of a third.
WORTHWHILE = 64

aten = torch.ops.aten


def _of_matrices(args: tuple[Any, ...]) -> float:
    return args[-2].numel() * args[-1].shape[-1]


def _of_convolution(args: tuple[Any, ...]) -> float:
    inputs, weight, stride, transposed, groups = args[0], args[1], args[3], args[6], args[8]
    kernel = math.prod(weight.shape[2:])
    if transposed:
        return inputs.numel() * weight.shape[1] * kernel
    return inputs.numel() * weight.shape[0] * kernel / groups / math.prod(stride)


def _of_attention(args: tuple[Any, ...]) -> float:
    query, key = args[:2]
    return 2 * query.numel() * key.shape[-2]


ATTENTION = Operation((0, 1, 2), _of_attention, results=2)
OPERATIONS: dict[OpOverload, Operation] = {
    aten.mm.default: Operation((0,), _of_matrices, into=aten.mm.out),
    aten.addmm.default: Operation((1,), _of_matrices, into=aten.addmm.out),
    aten.bmm.default: Operation((0, 1), _of_matrices, into=aten.bmm.out),
    aten.baddbmm.default: Operation((1, 2), _of_matrices, into=aten.baddbmm.out),
    aten.convolution.default: Operation((0,), _of_convolution),
    aten._scaled_dot_product_flash_attention_for_cpu.default: ATTENTION,
    aten._scaled_dot_product_flash_attention.default: ATTENTION,
    aten._scaled_dot_product_efficient_attention.default: replace(ATTENTION, wanted=4),
    aten._scaled_dot_product_cudnn_attention.default: replace(ATTENTION, wanted=4),
}


def ask_for_all(operation: Operation, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments that make the operation compute everything a backward pass needs."""
    place = operation.wanted
    if place is None or args[place]:
        return args
    return (*args[:place], True, *args[place + 1 :])


def as_plain_product(
    function: OpOverload, args: tuple[Any, ...]
) -> tuple[OpOverload, tuple[Any, ...], torch.Size | None]:
    """Turn a batched product with one repeated matrix into a product of two matrices.

    PyTorch chooses between the two forms by whether that matrix needs gradients, so that the
    choice may differ between selecting and training. Also return the shape to give the result;
    None leaves it.
    """
    if function is not aten.bmm.default:
        return function, args, None
    many, one = args
    if many.shape[0] > 1 and one.stride(0) != 0:
        return function, args, None
    shape = torch.Size((*many.shape[:2], one.shape[2]))
    return aten.mm.default, (many.reshape(-1, many.shape[2]), one[0]), shape


@cache
def _may_be_random(function: OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())


def refuse_random(function: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse a call that draws random numbers; it does not if dropout is 0 or off."""
    if not _may_be_random(function):
        return
    names = [argument.name for argument in function._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    chance = given.get("p", given.get("dropout_p", 0 if "dropout_p" in names else None))
    if chance != 0 and given.get("train", given.get("training")) is not False:
        raise ConfigurationError(
            f"{function} draws random numbers in the forward pass, and would draw others when "
            "training than when selecting, so that activations cannot be reused. Set dropout to "
            "0 (in attention too), or leave out reuse=."
        )


@cache
def written_arguments(function: OpOverload) -> tuple[tuple[int, str], ...]:
    """Return position and name of the arguments that an operation writes to."""
    schema = getattr(function, "_schema", None)
    if schema is None or not schema.is_mutable:
        return ()
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


class Order(Enum):
    """Which index varies slower along an axis of `candidates * inner` entries."""

    CANDIDATES_FIRST = "candidates first"  # batch * time
    CANDIDATES_LAST = "candidates last"  # time * batch


class RowPlaces:
    """Positions of selected candidates' entries along an axis of several entries per candidate."""

    def __init__(self, rows: Tensor, candidates: int) -> None:
        self.rows, self.candidates = rows, candidates
        self._known: dict[tuple[Order, int], Tensor] = {}

    def inner(self, before: torch.Size, after: torch.Size) -> int | None:
        """Return how many entries per candidate axis 0 has, before and after selection.

        None if the two shapes do not give the same whole number, or have other axes.
        """
        if not before or not after or before[1:] != after[1:]:
            return None
        inner, rest = divmod(before[0], self.candidates)
        return inner if inner and not rest and after[0] == inner * self.rows.shape[0] else None

    def along(self, inner: int, order: Order) -> Tensor:
        """Return the positions of the rows' entries, in the order of the training forward."""
        if inner == 1:
            return self.rows
        if (order, inner) not in self._known:
            step = torch.arange(inner, device=self.rows.device)
            if order is Order.CANDIDATES_FIRST:
                places = self.rows.unsqueeze(1) * inner + step
            else:
                places = step.unsqueeze(1) * self.candidates + self.rows
            self._known[order, inner] = places.flatten()
        return self._known[order, inner]


def take_places(tensor: Tensor, places: Tensor) -> Tensor:
    """Return some entries of axis 0, with all axes in the same order in memory as before."""
    strides = tensor.stride()
    order = sorted(range(tensor.ndim), key=lambda axis: (-strides[axis], axis))
    if order[0] != 0 or order == list(range(tensor.ndim)):
        return tensor.index_select(0, places)
    back = sorted(range(tensor.ndim), key=order.__getitem__)
    return tensor.permute(order).index_select(0, places).permute(back)
