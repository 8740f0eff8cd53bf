"""A process's own part of a data set, as a torch loader that Accelerate does not replace."""

import copy
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.data_loader import (
    BatchSamplerShard,
    DataLoaderDispatcher,
    DataLoaderShard,
    SeedableRandomSampler,
)
from accelerate.utils import DistributedType, broadcast_object_list
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

from selective_backprop import LoaderError
from selective_backprop.integrations._kit import deal_out, drawing, refuse

UNTESTED = {
    DistributedType.DEEPSPEED: "DeepSpeed",
    DistributedType.MEGATRON_LM: "Megatron-LM",
    DistributedType.XLA: "XLA",
}
SPLITS = ("tp_size", "cp_size", "sp_size")


def own_shard(accelerator: Accelerator, loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a torch loader of this process's examples, ready for a `SelectiveLoader`.

    With one process, this is the loader itself, or the one inside a prepared loader. With several,
    a `DistributedSampler` with the same seed in every process replaces the loader's sampler, and
    shuffles if the loader did. All processes get equally many examples. If the examples cannot be
    divided evenly, a few come up twice.
    """
    check_accelerator(accelerator)
    kind = type(loader)  # isinstance() would see the class of the loader inside a prepared one
    plain: DataLoader[Any] = getattr(loader, "base_dataloader", loader)
    if accelerator.num_processes == 1:
        return _seeded(plain)
    if issubclass(kind, DataLoaderDispatcher):
        raise LoaderError(
            "the loader was prepared with dispatch_batches: one process reads for all, so the "
            "others have nothing to choose from. Set dispatch_batches=False in Accelerate's "
            "DataLoaderConfiguration, or in accelerator_config= of the Trainer's arguments."
        )
    if not isinstance(plain.dataset, IterableDataset):
        return _deal_out(plain, accelerator)
    if not issubclass(kind, DataLoaderShard):
        raise LoaderError(
            "every process would read the whole stream, because the loader is not prepared. Pass "
            "accelerator.prepare(loader)"
        )
    return plain


def check_accelerator(accelerator: Accelerator) -> None:
    """Refuse options that selection does not support or was not tested with."""
    engine, several = UNTESTED.get(accelerator.distributed_type), accelerator.num_processes > 1
    split = getattr(accelerator, "parallelism_config", None)
    sizes = [f"{name}={getattr(split, name, 1) or 1}" for name in SPLITS]
    shared = ", ".join(size for size in sizes if not size.endswith("=1"))
    refuse(
        {
            f"selection has not been tested under {engine}, which runs the model's forward pass "
            "itself. Use DDP (several processes without a plugin)": engine,
            f"selection has not been tested with processes that share examples ({shared}). Use "
            "data parallelism alone": shared,
            "split_batches cuts each batch of the loader among the processes, but selection fills "
            "a batch for each process. Set split_batches=False, and divide the batch size by "
            f"{accelerator.num_processes}.": several and accelerator.split_batches,
            "even_batches=False lets processes train on different numbers of batches, but an epoch "
            "of selection ends when the first process has none left. Set even_batches=True.": (
                several and not accelerator.even_batches
            ),
        }
    )


def _deal_out(loader: DataLoader[Any], accelerator: Accelerator) -> DataLoader[Any]:
    batches = loader.batch_sampler
    if isinstance(batches, BatchSamplerShard):
        batches = batches.batch_sampler
    sampler, ranks = getattr(batches, "sampler", None), accelerator.num_processes
    own = type(sampler) is DistributedSampler and sampler.num_replicas == ranks
    if type(batches) is BatchSampler and own:
        return drawing(loader, sampler, batches)
    place = {"num_replicas": ranks, "rank": accelerator.process_index}
    return deal_out(loader, batches, _agreed_seed(sampler), **place)


def _seeded(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a loader whose sampler already holds the generator that Accelerate would make.

    To resume within an epoch, the sampler's state at the epoch's start must be known.
    """
    batches = loader.batch_sampler
    inside: Any = getattr(batches, "sampler", None)
    if type(batches) is not BatchSampler or type(inside) is not SeedableRandomSampler:
        return loader
    sampler = copy.copy(inside)
    if sampler.generator is None:
        sampler.generator = torch.Generator().manual_seed(sampler.initial_seed)
    return drawing(loader, sampler, batches)


def seed_name(sampler: Any) -> str | None:
    """Return the name of the attribute that seeds a sampler's orders; None if there is none."""
    if type(sampler) is SeedableRandomSampler:
        return "initial_seed"
    return "seed" if type(sampler) is DistributedSampler else None


def _agreed_seed(sampler: Any) -> int:
    """Return the first process's seed, so that all processes draw the same order."""
    seed = getattr(sampler, "initial_seed", None)
    seeds = [torch.initial_seed() if seed is None else seed]
    broadcast_object_list(seeds)
    return int(seeds[0]) % 2**62  # leaves room for the epoch's number, which torch adds
