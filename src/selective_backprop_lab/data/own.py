"""Read data of the user's own from a function that an import path names."""

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.splits import Part, Splits
from selective_backprop_lab.names import find_object
from selective_backprop_lab.shapes import Num, UInt8

_MAP_STYLE = ("__getitem__", "__len__")
_AT_ONCE = 4096  # images that are converted from floats to bytes together
_PICTURES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}  # PIL's modes, and how each is read
_RETURN = (
    "return (train, test), each of them (inputs, labels) as tensors or arrays, or a data set of "
    "pairs (input, label)"
)
_LABELS = "labels must be class numbers from 0, as integers"


def read_own_splits(name: str) -> Splits:
    """Return the data that the user's function returns, in memory."""
    found = find_object(name, kind="data set", needed="a function without arguments")()
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise sb.DataError(f"{name} returned {_words(found)}: {_RETURN}")
    train, test = (_read(found[part], f"{name}, {('train', 'test')[part]}") for part in (0, 1))
    _check_alike(test[0], train[0], f"{name}, test", "train")
    examples, highest = len(train[1]) + len(test[1]), int(max(train[1].max(), test[1].max()))
    if not 0 < highest < examples:
        raise sb.DataError(
            f"{name} has {examples:,} examples with labels up to {highest}: {_LABELS}, of at least "
            "two classes"
        )
    if lowest := int(min(train[1].min(), test[1].min())):
        raise sb.DataError(
            f"{name} has labels from {lowest} to {highest}: {_LABELS}. Subtract {lowest}"
        )
    return Splits(*train, *test, tuple(str(number) for number in range(highest + 1)))


def _read(split: Any, where: str) -> Part:
    is_pair = isinstance(split, tuple | list) and len(split) == 2
    if is_pair and all(isinstance(each, Tensor | np.ndarray) for each in split):
        inputs, labels = _checked(_tensor(split[0], where), where), _tensor(split[1], where)
    elif all(hasattr(split, each) for each in _MAP_STYLE) and not isinstance(split, Mapping | str):
        pairs = [_example(split[row], f"{where}, example {row}") for row in range(len(split))]
        for row, (each, _) in enumerate(pairs):
            _check_alike(each, pairs[0][0], f"{where}, example {row}", "example 0")
        inputs = torch.cat([each for each, _ in pairs]) if pairs else torch.empty(0)
        labels = torch.tensor([label for _, label in pairs])
    else:
        raise sb.DataError(f"{where} is {_words(split)}: {_RETURN}")
    if not inputs.numel():
        raise sb.DataError(f"{where} has no examples")
    if labels.shape != inputs.shape[:1]:
        raise sb.DataError(
            f"{where} has {len(inputs):,} inputs and labels of shape {tuple(labels.shape)}: there "
            "must be one label for each input"
        )
    whole = labels.to(torch.int64)
    if labels.is_floating_point() or whole.min() < 0:
        raise sb.DataError(
            f"{where} has labels of {labels.dtype}, the lowest {whole.min()}: {_LABELS}"
        )
    return inputs.contiguous(), whole


def _example(found: Any, where: str) -> tuple[Num[Tensor, "1 ..."], int]:
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise sb.DataError(f"{where} is {_words(found)}: {_RETURN}")
    value, label = found
    if hasattr(value, "convert"):
        if value.mode not in _PICTURES:
            raise sb.DataError(
                f"{where} is a picture of mode {value.mode}, but only {', '.join(_PICTURES)} are "
                'read: use .convert("RGB")'
            )
        value = np.asarray(value.convert(_PICTURES[value.mode]))
    try:
        number = operator.index(label)
    except TypeError:
        raise sb.DataError(f"{where} has the label {label!r:.40}: {_LABELS}") from None
    return _checked(_tensor(value, where)[None], where), number


def _tensor(value: Any, where: str) -> Num[Tensor, "..."]:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        raise sb.DataError(f"{where} has {kind}, but tensors or arrays of numbers are needed")
    # A copy, because an array may be read-only, mirrored, or of another byte order.
    return torch.from_numpy(np.array(value, value.dtype.newbyteorder("="), order="C"))


def _checked(inputs: Num[Tensor, "example ..."], where: str) -> Num[Tensor, "example ..."]:
    made, is_vector = inputs, inputs.is_floating_point() and inputs.ndim == 2
    if inputs.is_floating_point() and inputs.ndim == 4:
        made = torch.cat([_bytes(part, where) for part in inputs.split(_AT_ONCE)])
    if made.ndim == 3:
        made = made[:, None]  # grey
    elif made.ndim == 4 and made.shape[1] == made.shape[2] != made.shape[3] in (1, 3):
        made = made.permute(0, 3, 1, 2)
    is_image = made.dtype == torch.uint8 and made.ndim == 4 and made.shape[2] == made.shape[3]
    if not is_image and not is_vector:
        raise sb.DataError(
            f"{where} has inputs of shape {tuple(inputs.shape[1:])} and {inputs.dtype}: inputs "
            "must be square images, [channel, height, width] in uint8 or as ToTensor makes them, "
            "or vectors of floats"
        )
    if is_vector and not inputs.isfinite().all():
        raise sb.DataError(f"{where} has features that are not finite: fill them in")
    return made


def _bytes(
    images: Num[Tensor, "example channel height width"], where: str
) -> UInt8[Tensor, "example channel height width"]:
    levels = 255 * images.float()
    whole = levels.round().clamp(0, 255)
    if not ((levels - whole).abs() < 0.01).all():
        low, high = images.min().item(), images.max().item()
        raise sb.DataError(
            f"{where} has images of floats from {low:.3g} to {high:.3g}: return them as bytes, or "
            "as ToTensor makes them, in whole 255ths from 0 to 1. The lab normalises them itself"
        )
    return whole.to(torch.uint8)


def _check_alike(
    inputs: Num[Tensor, "example ..."], first: Num[Tensor, "other ..."], where: str, other: str
) -> None:
    this, that = ((tuple(each.shape[1:]), each.dtype) for each in (inputs, first))
    if this != that:
        raise sb.DataError(
            f"{where} has shape {this[0]} and {this[1]}, but {other} has {that[0]} and {that[1]}: "
            "all inputs must have the same"
        )


def _words(found: Any) -> str:
    words = f"a {type(found).__name__}"
    if isinstance(found, tuple | list):
        words += f" of {', '.join(type(each).__name__ for each in found[:5]) or 'nothing'}"
    return words
