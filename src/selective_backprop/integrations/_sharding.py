"""Copy data loaders with another sampler, for one rank's examples or for documents."""

from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
)

from selective_backprop._core.errors import LoaderError
from selective_backprop._pipeline.source import unstarted


def drawing(loader: DataLoader[Any], sampler: Any, batches: BatchSampler, **more: Any) -> Any:
    """Return a copy of a loader with another sampler, in batches of the same size.

    A loader refuses a new sampler, and a new loader would lose what subclasses add. So the copy's
    attributes are set without the loader's check, and so are the attributes in `more`.
    """
    clone = unstarted(loader)
    grouped = BatchSampler(sampler, batches.batch_size, batches.drop_last)
    changed = {"sampler": sampler, "batch_sampler": grouped, **more}
    for name, value in changed.items():
        object.__setattr__(clone, name, value)
    return clone


def deal_out(loader: DataLoader[Any], batches: Any, seed: int, **rank: Any) -> DataLoader[Any]:
    """Return a loader of one rank's examples, in an order that all ranks draw from the seed.

    Args:
        loader: a loader of all examples.
        batches: the sampler of the loader's batches.
        seed: the same on every rank.
        rank: `num_replicas` and `rank` of a `DistributedSampler`.

    Raises:
        LoaderError: if the ranks might draw different orders.
    """
    if type(batches) is not BatchSampler:
        raise LoaderError(
            f"a {type(batches).__name__} groups the loader's batches, and cannot be divided among "
            "several processes. Give the loader a batch_size= and a sampler."
        )
    shuffle = _shuffles(batches.sampler, loader)
    dealt = DistributedSampler(loader.dataset, shuffle=shuffle, seed=seed, **rank)
    return drawing(loader, dealt, batches)


def _shuffles(sampler: Any, loader: DataLoader[Any]) -> bool:
    """Return whether torch's own sampler draws all examples in a random order, once each."""
    dataset: Any = loader.dataset
    if type(sampler) is SequentialSampler:
        return False
    if isinstance(sampler, RandomSampler):  # Accelerate derives from it
        if not sampler.replacement and sampler.num_samples == len(dataset):
            return True
        raise LoaderError(
            f"the sampler draws {sampler.num_samples} of {len(dataset)} examples"
            f"{', some more than once' if sampler.replacement else ''}, which cannot be divided "
            "among several processes. Divide them yourself, with a DistributedSampler."
        )
    raise LoaderError(
        f"the sampler ({type(sampler).__name__}) cannot be divided among processes, because its "
        "order may differ between them. Use shuffle=True or False, or a DistributedSampler."
    )
