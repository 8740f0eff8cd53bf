"""The user's data loader, seen from outside: what it draws, and how it is iterated unchanged."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from selective_backprop._errors import LoaderError


@dataclass(frozen=True)
class Source:
    """A data loader and what is known of it without iterating it.

    Attributes:
        loader: the user's own loader, never changed.
        attribute: the attribute that yields indices, `"batch_sampler"` or, with
            `batch_size=None`, `"sampler"`; None for a stream, whose examples have no indices.
        batch_size: candidates per batch, or None if that is not known.
        examples: examples in the data set, or None for a stream.
    """

    loader: DataLoader[Any]
    attribute: str | None
    batch_size: int | None
    examples: int | None

    @property
    def indexed(self) -> bool:
        """Whether candidate batches can be paired with the indices they were loaded for."""
        return self.attribute is not None

    @property
    def batches(self) -> int | None:
        """Candidate batches per epoch, or None if the loader cannot tell."""
        return _count(copy.copy(self.loader))

    def length(self) -> int:
        """Return the candidate batches per epoch.

        Raises:
            TypeError: if the loader cannot tell.
        """
        # asked of a copy, since a stream's loader remembers that it was asked
        return len(copy.copy(self.loader))

    @property
    def own_batches(self) -> bool:
        """Whether somebody else's batch sampler decides which examples go together."""
        return self.attribute is not None and type(self._indices) is not BatchSampler

    def sizes(self) -> Iterator[int] | None:
        """Return the sizes of an epoch's candidate batches, or None where they vary freely."""
        batches, sampler = self.batches, self._indices
        if batches is None or type(sampler) is not BatchSampler:
            return None
        examples = _count(sampler.sampler)
        if examples is None:
            return None
        size = sampler.batch_size
        return (min(size, examples - number * size) for number in range(batches))

    def copy_with(self, indices: Iterable[Any] | None) -> DataLoader[Any]:
        """Return a loader that is the user's in everything but where its indices come from.

        A shallow copy, since rebuilding one from its options is not faithful to subclasses.
        """
        clone = copy.copy(self.loader)
        object.__setattr__(clone, "_iterator", None)
        if self.attribute is not None:
            object.__setattr__(clone, self.attribute, indices)
        return clone

    @property
    def _indices(self) -> Any:
        return None if self.attribute is None else getattr(self.loader, self.attribute)

    def indices(self) -> Iterable[Any]:
        """Return what yields the indices of each candidate batch."""
        return self._indices


def open_source(loader: Any) -> Source:
    """Look at a loader from outside.

    Raises:
        LoaderError: if it is no data loader of torch, is prepared by Accelerate, or is empty.
    """
    _check_kind(loader)
    dataset = loader.dataset
    stream = isinstance(dataset, IterableDataset)
    # Out of order, a batch cannot be paired with its indices: first in is not first out.
    ordered = getattr(loader, "in_order", True) or loader.num_workers == 0
    attribute = None
    if not stream and ordered:
        if loader.batch_sampler is not None:
            attribute = "batch_sampler"
        elif type(loader.sampler) not in (RandomSampler, SequentialSampler):
            attribute = "sampler"  # may yield lists of indices; the first batch tells
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    size = loader.batch_size or getattr(sampler, "batch_size", None)
    source = Source(
        loader,
        attribute,
        size if isinstance(size, int) and size > 0 else None,
        None if stream else _count(dataset),
    )
    if source.batches == 0:
        raise LoaderError(
            "the loader is empty: it would yield no batch. Check the data set, the sampler and "
            "drop_last (which drops everything where a data set is smaller than a batch)."
        )
    return source


def _count(items: Any) -> int | None:
    """Return how many items there are, or None if nobody knows."""
    try:
        return len(items)
    except (TypeError, NotImplementedError):
        return None


def _check_kind(loader: Any) -> None:
    if type(loader).__module__.partition(".")[0] == "accelerate":
        raise LoaderError(
            f"the loader was prepared by Accelerate ({type(loader).__name__}), whose iteration "
            "ignores a replaced sampler. Wrap the loader before accelerator.prepare(): "
            "SelectiveLoader(loader, ...) of the loader as it was."
        )
    if not isinstance(loader, DataLoader):
        raise LoaderError(
            f"a torch.utils.data.DataLoader is needed, got {type(loader).__name__}. Anything "
            "that yields batches can be wrapped as DataLoader(iterable_data_set, "
            "batch_size=None)."
        )
