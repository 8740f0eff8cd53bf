"""Deal a data loader's examples out to the ranks, as Lightning does."""

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

from selective_backprop._core.errors import LoaderError


def as_lightning_would(
    loader: DataLoader[Any], trainer: Trainer, *, shard: bool
) -> DataLoader[Any]:
    """Return a copy of the loader for this rank to iterate.

    Examples are dealt out by a `DistributedSampler`, seeded as Lightning's are, and workers are
    seeded where `seed_everything(workers=True)` asks for it.

    Args:
        loader: the user's loader; it is not changed.
        trainer: knows the ranks.
        shard: whether to deal out; a `DistributedSampler` in the loader is kept in any case.

    Raises:
        LoaderError: if the loader draws by a sampler that cannot be dealt out.
    """
    clone = copy.copy(loader)
    if shard and trainer.world_size > 1:
        _deal_out(clone, trainer)
    if int(os.environ.get("PL_SEED_WORKERS", 0)) and clone.worker_init_fn is None:
        clone.worker_init_fn = partial(pl_worker_init_function, rank=trainer.global_rank)
    return clone


def _deal_out(loader: DataLoader[Any], trainer: Trainer) -> None:
    batches, sampler = loader.batch_sampler, loader.sampler
    held = (batches, getattr(batches, "sampler", None), sampler)
    if isinstance(loader.dataset, IterableDataset) or any(
        isinstance(part, DistributedSampler) for part in held
    ):
        return
    plain = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler)
        and not sampler.replacement
        and sampler.num_samples == len(loader.dataset)  # ty: ignore[invalid-argument-type]
    )
    if type(batches) is not BatchSampler or not plain:
        kinds = " of ".join(type(part).__name__ for part in (batches, sampler) if part is not None)
        raise LoaderError(
            f"the loader draws by a {kinds}, which is not known to deal out to "
            f"{trainer.world_size} ranks. Give it a sampler that yields each rank's own indices "
            "(such as torch's DistributedSampler), and pass shard=False."
        )
    dealt = DistributedSampler(
        loader.dataset,
        shuffle=isinstance(sampler, RandomSampler),
        seed=int(os.environ.get("PL_GLOBAL_SEED", 0)),
        **(trainer.distributed_sampler_kwargs or {}),
    )
    # A loader refuses to have these set; building a new one would lose what subclasses add.
    object.__setattr__(loader, "sampler", dealt)
    object.__setattr__(
        loader, "batch_sampler", BatchSampler(dealt, batches.batch_size, batches.drop_last)
    )
