"""Divide a data loader's examples among the ranks, as Lightning does."""

import copy
import os
from functools import partial
from typing import Any

from lightning.fabric.utilities.seed import pl_worker_init_function
from lightning.pytorch import Trainer
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from selective_backprop import ConfigurationError, Strategy
from selective_backprop.integrations._kit import deal_out


def as_lightning_would(
    loader: DataLoader[Any], trainer: Trainer, strategy: Strategy
) -> DataLoader[Any]:
    """Return a copy of the loader for this rank to iterate.

    A `DistributedSampler` with Lightning's seed divides the examples, unless the loader has its own
    `DistributedSampler`, or the trainer has `use_distributed_sampler=False`. Workers are seeded if
    `seed_everything(workers=True)` was called.

    Raises:
        ConfigurationError: if each rank may have a data set of its own, but the strategy remembers
            examples by index.
        LoaderError: if the loader's sampler cannot be divided among the ranks.
    """
    batches, sampler = loader.batch_sampler, loader.sampler
    held = (batches, getattr(batches, "sampler", None), sampler)
    whole = not any(isinstance(part, DistributedSampler) for part in held)
    clone = copy.copy(loader)
    if trainer.world_size > 1 and whole and not isinstance(loader.dataset, IterableDataset):
        if trainer._accelerator_connector.use_distributed_sampler:
            seed = int(os.environ.get("PL_GLOBAL_SEED", 0))
            clone = deal_out(loader, batches, seed, **(trainer.distributed_sampler_kwargs or {}))
        else:
            _check_memory(batches, strategy)
    if int(os.environ.get("PL_SEED_WORKERS", 0)) and clone.worker_init_fn is None:
        clone.worker_init_fn = partial(pl_worker_init_function, rank=trainer.global_rank)
    return clone


def _check_memory(batches: Any, strategy: Strategy) -> None:
    """Refuse to remember examples by index if each rank may have a data set of its own."""
    undivided = type(batches) is BatchSampler
    undivided = undivided and type(batches.sampler) in (RandomSampler, SequentialSampler)
    if undivided and strategy.needs is not None and strategy.needs.remembers:
        raise ConfigurationError(
            f"{strategy.name} remembers examples by index, but with "
            "Trainer(use_distributed_sampler=False) an index may mean another example on each "
            "rank. Give every rank the whole data set and a DistributedSampler, or choose a "
            "strategy that remembers nothing, such as selective_backprop(rate=1/3)."
        )
