"""The user's data loader: what it draws, and how to iterate over a copy of it."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import data
from torch.utils.data import BatchSampler, DataLoader

from selective_backprop._core.errors import LoaderError
from selective_backprop._pipeline.in_memory import gathers
from selective_backprop._sampling.subset import Subset

STREAM = "a stream without indices (an iterable data set, batch_size=None or in_order=False)"


@dataclass(frozen=True)
class Source:
    """A data loader, and what is known about it before iterating over it.

    `attribute` names the loader's attribute that yields indices: `"batch_sampler"` or, with
    `batch_size=None`, `"sampler"`. It is None for a stream, whose examples have no indices.
    """

    loader: DataLoader[Any]  # the user's own, never changed
    attribute: str | None
    batch_size: int | None  # candidates per batch; None if unknown
    examples: int | None  # in the data set; None for a stream
    subset: Subset | None = None  # the only examples that are drawn; None for all

    @property
    def indexed(self) -> bool:
        return self.attribute is not None

    @property
    def batches(self) -> int | None:
        return count_items(self._batches)

    def length(self) -> int:
        return len(self._batches)

    @property
    def _batches(self) -> Any:
        # a copy, because a stream's loader remembers that its length was asked for
        return copy.copy(self.loader) if self.subset is None else self.indices()

    @property
    def own_batches(self) -> bool:
        """Whether a batch sampler other than torch's own decides which examples go together."""
        package = type(self._indices).__module__.partition(".")[0]
        return self.attribute is not None and package not in ("torch", "torchdata")

    @property
    def kind(self) -> str:
        return type(self._indices).__name__

    def sizes(self) -> Iterator[int] | None:
        batches, indices, examples = self.batches, self.indices(), None
        if isinstance(indices, KeptBatches):
            examples = indices.examples
        elif type(indices) is BatchSampler:
            examples = count_items(indices.sampler)
        if batches is None or examples is None:
            return None
        size = indices.batch_size
        return (min(size, examples - number * size) for number in range(batches))

    def count_kept(self, mask: np.ndarray) -> int | None:
        batches = self._indices
        sampler = batches.sampler if type(batches) is BatchSampler else None
        if _draws_once(sampler, len(mask)):
            kept = mask
        elif type(sampler) is data.SubsetRandomSampler and self.subset is None:
            kept = mask[np.asarray(sampler.indices)]
        else:
            return None
        if self.subset is not None:
            kept = kept[self.subset.mask().numpy()]
        if batches.drop_last and len(kept) % batches.batch_size:
            return None  # the order decides which candidates are not drawn
        return int(np.count_nonzero(kept))

    @property
    def draws_all(self) -> bool:
        return _draws_once(getattr(self._indices, "sampler", None), self.examples)

    @property
    def balances(self) -> bool:
        """Whether some examples are drawn more often than others."""
        sampler = getattr(self._indices, "sampler", None)
        uneven = isinstance(sampler, data.WeightedRandomSampler)
        return uneven and bool((sampler.weights != sampler.weights[:1]).any())

    def is_shared_by(self, ranks: int) -> bool:
        sampler = getattr(self._indices, "sampler", self._indices)
        return type(sampler) is data.DistributedSampler and sampler.num_replicas == ranks

    def set_epoch(self, epoch: int) -> None:
        loader, batches = self.loader, self.loader.batch_sampler
        parts = batches, getattr(batches, "sampler", None), loader.sampler, loader.dataset
        each_once: dict[int, Any] = {id(part): part for part in parts}
        for part in each_once.values():
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)

    def copy_with(self, indices: Iterable[Any] | None) -> DataLoader[Any]:
        clone = unstarted(gathers(self.loader))
        if self.attribute is not None:
            object.__setattr__(clone, self.attribute, indices)
        return clone

    @property
    def _indices(self) -> Any:
        return None if self.attribute is None else getattr(self.loader, self.attribute)

    def indices(self) -> Any:
        if self.subset is None:
            return self._indices
        return KeptBatches(self._indices, self.subset, self.batch_size or 1)

    def refuse_if_empty(self) -> None:
        if self.batches != 0:
            return
        kept = "" if self.subset is None else f" of the {len(self.subset)} examples that are kept"
        raise LoaderError(
            f"the loader is empty: it would yield no batch{kept}. Check the data set, the sampler "
            "and drop_last (with it, less than one batch of examples is dropped)."
        )

    def within(self, subset: Subset, batch_size: int | None = None) -> "Source":
        if self.attribute != "batch_sampler":
            raise LoaderError(
                f"a subset is drawn by index, but this loader yields {STREAM}. Give it a map-style "
                "data set and a batch size"
            )
        if self.examples is None:
            raise LoaderError(
                f"a subset needs a data set of known size, but {type(self.loader.dataset).__name__}"
                " has none. Give it a __len__()"
            )
        size = self.batch_size or batch_size
        if size is None:
            raise LoaderError(
                "the examples of a subset are joined into full batches, but the batch sampler "
                f"({self.kind}) has no batch_size: pass batch_size= for the training batches"
            )
        subset.check(self.examples)
        source = replace(self, subset=subset, batch_size=size)
        source.refuse_if_empty()
        return source


class KeptBatches:
    def __init__(self, batches: Any, subset: Subset, batch_size: int) -> None:
        self._subset = subset
        self.batch_size = batch_size
        self._drops_last = bool(getattr(batches, "drop_last", False))
        if type(batches) is BatchSampler:  # its last batch may hold examples of the subset
            batches = BatchSampler(batches.sampler, batches.batch_size, drop_last=False)
        self.sampler = batches  # its random generators are found by this name

    @property
    def examples(self) -> int | None:
        """Examples per epoch, if each example of the data set is drawn once; else None."""
        sampler = getattr(self.sampler, "sampler", None)
        once = type(self.sampler) is BatchSampler and not getattr(sampler, "replacement", False)
        whole = count_items(sampler) == self._subset.examples
        return len(self._subset) if once and whole else None

    def __len__(self) -> int:
        if self.examples is None:
            raise TypeError("it is not known in advance how many examples of the subset come up")
        full, rest = divmod(self.examples, self.batch_size)
        return full + bool(rest and not self._drops_last)

    def __iter__(self) -> Iterator[Any]:
        kept = self._subset.mask()
        waiting = torch.empty(0, dtype=torch.int64)
        for indices in self.sampler:
            keys = _as_indices(indices, self._subset.examples)
            waiting = torch.cat([waiting, keys[kept[keys]]])
            while len(waiting) >= self.batch_size:
                yield waiting[: self.batch_size].tolist()
                waiting = waiting[self.batch_size :]
        if len(waiting) and not self._drops_last:
            yield waiting.tolist()


def _draws_once(sampler: Any, examples: int | None) -> bool:
    own = type(sampler) in (data.RandomSampler, data.SequentialSampler)
    return own and not getattr(sampler, "replacement", False) and count_items(sampler) == examples


def _as_indices(indices: Any, examples: int) -> Tensor:
    try:
        keys = torch.as_tensor(indices)
        fits = keys.ndim == 1 and not keys.is_floating_point()
    except (TypeError, ValueError):
        fits = False
    if not fits or bool(((keys < 0) | (keys >= examples)).any()):
        raise LoaderError(
            f"the sampler yields keys that are not indices from 0 to {examples - 1}, but a subset "
            "consists of indices"
        )
    return keys.long()


def unstarted(loader: DataLoader[Any]) -> DataLoader[Any]:
    clone = copy.copy(loader)
    object.__setattr__(clone, "_iterator", None)
    if hasattr(clone, "_initial_iter_for_state_dict"):  # torchdata's: whether an iterator waits
        object.__setattr__(clone, "_initial_iter_for_state_dict", False)
    return clone


def open_source(loader: Any) -> Source:
    """Return what is known about a torch `DataLoader`; refuse other loaders and empty ones."""
    if type(loader).__module__.partition(".")[0] == "accelerate":
        raise LoaderError(
            f"the loader was prepared by Accelerate ({type(loader).__name__}). Use "
            "AcceleratedLoader of selective_backprop.integrations.accelerate, or SelectiveTrainer "
            "of selective_backprop.integrations.transformers, which take the prepared loader."
        )
    if type(loader).__name__ == "SelectiveLoader":
        raise LoaderError("the loader is a SelectiveLoader: pass the data loader that it wraps")
    if not isinstance(loader, DataLoader):
        raise LoaderError(
            f"a torch.utils.data.DataLoader is needed, got {type(loader).__name__}. Around a data "
            "set of examples, write DataLoader(data_set, batch_size=32, shuffle=True). Around one "
            "that yields batches, write DataLoader(iterable_data_set, batch_size=None)."
        )
    stream = isinstance(loader.dataset, data.IterableDataset)
    attribute = "sampler" if loader.batch_sampler is None else "batch_sampler"
    sampler = getattr(loader, attribute)
    # Another sampler may yield lists of indices; the first batch tells.
    listed = type(sampler) not in (data.RandomSampler, data.SequentialSampler)
    # Batches that arrive out of order cannot be paired with their indices first in, first out.
    ordered = getattr(loader, "in_order", True) or loader.num_workers == 0
    size = loader.batch_size or getattr(sampler, "batch_size", None)
    source = Source(
        loader,
        attribute if listed and ordered and not stream else None,
        size if isinstance(size, int) and size > 0 else None,
        None if stream else count_items(loader.dataset),
    )
    source.refuse_if_empty()
    return source


def count_items(items: Any) -> int | None:
    try:
        return len(items)
    except (TypeError, NotImplementedError):
        return None
