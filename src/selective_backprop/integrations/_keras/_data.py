"""Turn the data given to `fit` into a torch data loader."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from selective_backprop._core.errors import ConfigurationError, LoaderError
from selective_backprop._core.options import check_flag, check_number, check_whole
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop.integrations._keras._backend import keras


class Rows(Dataset[Any]):
    """A data set of rows `(inputs, targets)` or `(inputs, targets, weights)`, read in batches."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self._length = len(keras.tree.flatten(parts)[0])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return keras.tree.map_structure(lambda leaf: leaf[index], self.parts)

    def __getitems__(self, indices: list[int]) -> Any:
        """Return all rows of a batch at once."""
        rows = torch.tensor(indices)
        return keras.tree.map_structure(lambda leaf: leaf[rows], self.parts)


def as_it_is(batch: Any) -> Any:
    """Return the batch as it is, because it needs no collating."""
    return batch


def refuse_others(x: Any) -> None:
    """Refuse data other than arrays and data loaders that can be wrapped."""
    if isinstance(x, SelectiveLoader):
        raise LoaderError(
            "x is a SelectiveLoader. Pass the DataLoader inside it, which SelectiveFit wraps itself"
        )
    if not isinstance(x, DataLoader) and not _is_arrays(x):
        raise LoaderError(
            f"x is a {type(x).__name__}, so single examples cannot be chosen. Pass arrays or a "
            "torch DataLoader. If yours yields batches, write DataLoader(iterable_data_set, "
            "batch_size=None)."
        )


def refuse_beside_loader(**given: Any) -> None:
    """Refuse arguments of `fit` that a data loader decides itself."""
    instead = {
        "y": "let the loader yield (x, y)",
        "batch_size": "set the loader's",
        "sample_weight": "let the loader yield (x, y, sample_weight)",
        "class_weight": "let the loader yield (x, y, sample_weight)",
        "validation_split": "pass validation_data=",
    }
    for name, value in given.items():
        if value is not None:
            raise ConfigurationError(
                f"{name}= is for arrays, but x is a DataLoader: {instead[name]}"
            )


def join_arrays(x: Any, y: Any, sample_weight: Any, class_weight: Any) -> tuple[Any, ...]:
    """Return inputs, targets and any weights as tensors; each may be a structure of arrays.

    Raises:
        ConfigurationError: if arrays differ in length or hold anything but numbers, or if both
            `sample_weight` and `class_weight` are given.
    """
    if class_weight is not None:
        if sample_weight is not None:
            raise ConfigurationError("give sample_weight= or class_weight=, not both")
        sample_weight = weigh_classes(y, class_weight)
    parts = tuple(part for part in (x, y, sample_weight) if part is not None)
    parts = keras.tree.map_structure(as_tensor, parts)
    lengths = {len(leaf) for leaf in keras.tree.flatten(parts)}
    if len(lengths) != 1:
        found = ", ".join(map(str, sorted(lengths)))
        raise ConfigurationError(f"all arrays need the same length, got {found} rows")
    return parts


def as_tensor(array: Any) -> Tensor:
    """Return an array as a tensor; floating-point numbers get Keras's precision.

    Raises:
        ConfigurationError: if it holds anything but numbers.
    """
    if not isinstance(array, Tensor):
        array = np.asarray(array)
        if array.dtype.kind not in "biuf":
            raise ConfigurationError(
                f"arrays of numbers are needed, got {array.dtype}; encode them before training"
            )
        array = torch.from_numpy(np.ascontiguousarray(array))
    precise = getattr(torch, keras.config.floatx())
    return array.to(precise) if array.is_floating_point() else array


def weigh_classes(y: Any, class_weight: Mapping[int, float]) -> Tensor:
    """Return the weight of each example's class, `[example]`; 1 for classes without a weight.

    The targets are class numbers, `[example]` or `[example, 1]`, or one-hot rows.

    Raises:
        ConfigurationError: if the model has several targets, or none.
    """
    if y is None or keras.tree.is_nested(y):
        raise ConfigurationError("class_weight= needs one array of targets")
    classes = as_tensor(y)
    if classes.ndim > 1:
        classes = classes.squeeze(-1) if classes.shape[-1] == 1 else classes.argmax(-1)
    classes = classes.round().long() if classes.is_floating_point() else classes.long()
    found, places = classes.unique(return_inverse=True)
    return torch.tensor([float(class_weight.get(each, 1.0)) for each in found.tolist()])[places]


def split_off(parts: tuple[Any, ...], share: float) -> tuple[Any, Any]:
    """Split the rows in two; the second part is the last `share` of them.

    Raises:
        ConfigurationError: if a part would be empty.
    """
    share = check_number("validation_split", share, most=1)
    count = len(keras.tree.flatten(parts)[0])
    stop = math.floor(count * (1.0 - share))
    if not 0 < stop < count:
        raise ConfigurationError(
            f"validation_split={share} of {count} examples leaves none to train or to validate on"
        )
    first = keras.tree.map_structure(lambda leaf: leaf[:stop], parts)
    return first, keras.tree.map_structure(lambda leaf: leaf[stop:], parts)


def load_rows(parts: tuple[Any, ...], batch_size: int | None, shuffle: Any) -> DataLoader[Any]:
    """Return a loader of arrays.

    Raises:
        ConfigurationError: if `shuffle` is not a bool, or the batch size not a positive integer.
    """
    check_flag("shuffle", shuffle)
    size = check_whole("batch_size", 32 if batch_size is None else batch_size)  # 32 as in Keras
    return DataLoader(Rows(parts), batch_size=size, shuffle=shuffle, collate_fn=as_it_is)


def _is_arrays(x: Any) -> bool:
    leaves = keras.tree.flatten(x)
    return bool(leaves) and all(hasattr(leaf, "__array__") for leaf in leaves)
