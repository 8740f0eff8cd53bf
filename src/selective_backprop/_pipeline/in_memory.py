"""Take the rows of tensors in memory by one index call per batch."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate

from selective_backprop._batches.structure import SIGNED
from selective_backprop._core.errors import LoaderError

Collate: TypeAlias = Callable[[list[Tensor]], Any]


class GatheredRows(Dataset[Any]):
    """The examples of a `TensorDataset`, or of a `Subset` of one, gathered a batch at a time."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._seen: Sequence[Tensor] | None = None  # the tensors last time; users may replace them
        self._fit = False  # whether rows can be taken from these

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]

    def __getitems__(self, indices: Any) -> Any:
        subset = self._dataset if type(self._dataset) is Subset else None
        own = indices if subset is None else [subset.indices[index] for index in indices]
        places, tensors = np.asarray(own), _tensors_of(self._dataset)
        if tensors is not self._seen:
            self._seen, self._fit = tensors, bool(tensors) and all(map(_takes_rows, tensors))
        # torch handles all other indices: it counts from the end, or raises.
        usual = places.dtype == np.int64 and places.ndim == 1 and len(places) > 0
        fits = tensors is not None and self._fit and usual and places.min() >= 0
        if fits and places.max() < tensors[0].shape[0]:
            rows = torch.from_numpy(places)
            return [each.index_select(0, rows.to(each.device)) for each in tensors]
        return default_collate([self._dataset[index] for index in indices])


def in_memory_loader(loader: DataLoader[Any], collate_fn: Collate | None = None) -> DataLoader[Any]:
    """Return a faster copy of a loader, which takes whole batches from tensors in memory.

    torch's loader takes the examples of a `TensorDataset` one by one and stacks them. The copy
    takes all rows of a batch by one index call. Batches, their order and random states stay the
    same, bit for bit. `SelectiveLoader` does this by itself if the loader has no workers and uses
    torch's default collate function.

    Args:
        loader: a loader of a `TensorDataset`, or of a `Subset` of one, that yields batches.
        collate_fn: `callable(tensors)` that gets the batch's rows of each tensor and returns the
            batch. It replaces the loader's own collate function, which takes a list of examples.

    Raises:
        LoaderError: if the loader has another kind of data set or yields single examples. Also if
            it has its own collate function and you do not pass `collate_fn`.
    """
    if not isinstance(loader, DataLoader) or loader.batch_sampler is None:
        raise LoaderError("a torch.utils.data.DataLoader that yields batches is needed")
    if _tensors_of(loader.dataset) is None:
        raise LoaderError(
            f"the data set is a {type(loader.dataset).__name__}, but a TensorDataset is needed, or "
            "a Subset of one. Give other data sets a method __getitems__(indices) that returns a "
            "batch, and give the loader a collate_fn that returns it unchanged."
        )
    if collate_fn is None and loader.collate_fn is not default_collate:
        raise LoaderError(
            "the loader has a collate function of its own, which takes a list of examples. Pass "
            "collate_fn=callable(tensors) -> batch instead, which takes the gathered tensors"
        )
    return _gathering(loader, collate_fn)


def gathers(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a copy that gathers rows if this changes only the speed; else the loader itself."""
    plain = type(loader) is DataLoader and loader.batch_sampler is not None
    plain = plain and not loader.num_workers and loader.collate_fn is default_collate
    return _gathering(loader) if plain and _tensors_of(loader.dataset) is not None else loader


def _gathering(loader: DataLoader[Any], collate: Collate | None = None) -> DataLoader[Any]:
    clone = copy.copy(loader)
    # A data loader refuses to have these set once it is built.
    object.__setattr__(clone, "_iterator", None)
    object.__setattr__(clone, "dataset", GatheredRows(loader.dataset))
    object.__setattr__(clone, "collate_fn", collate or list)
    return clone


def _tensors_of(dataset: Any) -> Sequence[Tensor] | None:
    if type(dataset) is Subset:
        dataset = dataset.dataset
    return dataset.tensors if type(dataset) is TensorDataset else None


def _takes_rows(tensor: Tensor) -> bool:
    if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_nested:
        return False
    odd = tensor.is_quantized or tensor.is_conj() or tensor.is_neg()
    # Of columns of large unsigned integers, torch takes single numbers only.
    return tensor.is_contiguous() and not odd and (tensor.ndim > 1 or tensor.dtype not in SIGNED)
