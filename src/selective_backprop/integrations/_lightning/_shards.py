"""Divide a data loader's examples among the ranks, as Lightning does."""

import copy
import os
from functools import partial
from typing import Any

from lightning.fabric.utilities.seed import pl_worker_init_function
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from selective_backprop.integrations._sharding import deal_out


def as_lightning_would(loader: DataLoader[Any], trainer: Trainer) -> DataLoader[Any]:
    """Return a copy of the loader for this rank to iterate.

    A `DistributedSampler` with Lightning's seed divides the examples, unless the loader has its own
    `DistributedSampler`. Workers are seeded if `seed_everything(workers=True)` was called.

    Raises:
        LoaderError: if the loader's sampler cannot be divided among the ranks.
    """
    batches, sampler = loader.batch_sampler, loader.sampler
    held = (batches, getattr(batches, "sampler", None), sampler)
    whole = not any(isinstance(part, DistributedSampler) for part in held)
    if trainer.world_size > 1 and whole and not isinstance(loader.dataset, IterableDataset):
        seed = int(os.environ.get("PL_GLOBAL_SEED", 0))
        clone = deal_out(loader, batches, seed, **(trainer.distributed_sampler_kwargs or {}))
    else:
        clone = copy.copy(loader)
    if int(os.environ.get("PL_SEED_WORKERS", 0)) and clone.worker_init_fn is None:
        clone.worker_init_fn = partial(pl_worker_init_function, rank=trainer.global_rank)
    return clone
