"""A selecting loader that acts like one that Accelerate has prepared."""

import copy
import weakref
from collections.abc import Callable, Generator, Iterator
from functools import partial
from types import NoneType
from typing import Any

import torch
from accelerate import Accelerator, data_loader
from accelerate.state import GradientState
from accelerate.utils import DistributedType, broadcast_object_list
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

from selective_backprop import ConfigurationError, LoaderError, Selection, SelectiveLoader, Strategy
from selective_backprop.integrations import _kit as kit
from selective_backprop.integrations._kit import deal_out, drawing, refuse

END = object()
SEEDS = 2**64  # a seed has 64 bits
# The attributes that seed samplers' orders.
Seedable = data_loader.SeedableRandomSampler
SEEDED_BY: dict[type, str] = {Seedable: "initial_seed", DistributedSampler: "seed"}
Loaders = weakref.WeakValueDictionary[str, "AcceleratedLoader"]
_loaders: weakref.WeakKeyDictionary[Accelerator, Loaders] = weakref.WeakKeyDictionary()


class AcceleratedLoader(data_loader.DataLoaderStateMixin):
    """Yield selected examples under Accelerate, like a loader that Accelerate has prepared.

    Each process trains on its own part of the data, and all train on equally many batches. Like a
    prepared loader, this one fetches one batch ahead of the loop, to know which batch is the last.
    Examples are therefore scored one step earlier than with `SelectiveLoader`.
    `accelerator.save_state` and `load_state` include the loader's state. Each process has its own
    file, `<name>-<process>-of-<processes>.pt`, which `torch.load(weights_only=True)` reads.

    Args:
        accelerator: the accelerator that prepared the model.
        loader: the loader to select from, prepared by `accelerator.prepare` or not. With several
            processes, the loader of an iterable data set must be prepared.
        model: the model in training, as in `SelectiveLoader`.
        loss_fn: as in `SelectiveLoader`.
        strategy: what to select and when, such as `selective_backprop(rate=1/3)`.
        name: first part of the names of saved files. Each loader of an accelerator needs its own.
        options: further options of `SelectiveLoader`, by name.

    Raises:
        ConfigurationError: if an option of Accelerate or of selection cannot work.
        LoaderError: if the loader cannot be wrapped with this strategy, or if its examples cannot
            be divided among several processes.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        loader: Any,
        model: nn.Module | None,
        loss_fn: Callable[..., Any] | None,
        strategy: Strategy,
        *,
        name: str = "selection",
        **options: Any,
    ) -> None:
        shard = own_shard(accelerator, loader)
        self._loader = SelectiveLoader(shard, model, loss_fn, strategy, **options)
        loaders = _loaders_of(accelerator)
        if name in loaders:
            raise ConfigurationError(
                f"another loader of this accelerator saves its state as {name!r}. Pass name= or, "
                "if you no longer need that loader, delete it first (del)"
            )
        loaders[name] = self
        self.gradient_state = GradientState()
        self._accelerator, self._name = accelerator, name
        self._loss: kit.WeighingLoss | None = None
        self._ahead: Any = END
        self._over = 0  # batches of the running epoch that the inner loader does not count
        self._live: weakref.ref[Generator[Any]] | None = None

    @property
    def loss_fn(self) -> kit.WeighingLoss:
        """The loss function to call in your loop, like `SelectiveLoader.loss_fn`."""
        loss = self._loader.loss_fn
        assert isinstance(loss, kit.WeighingLoss)
        if self._loss is None:
            self._loss, loss.ahead = loss, True
        return loss

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the `SelectiveLoader` inside, such as `record` or `stats`.

        Counts in `stats` include the batch that was fetched ahead. You seldom need `set_epoch`,
        because this loader counts epochs by itself.
        """
        if name.startswith("_"):  # also before `__init__` has set `_loader`
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader) + self._fetched_before

    def __iter__(self) -> Iterator[Any]:
        live = None if self._live is None else self._live()
        if live is not None:
            live.close()
        batches = self._run()
        self._live = weakref.ref(batches)
        return batches

    def _run(self) -> Generator[Any]:
        self._over = self._fetched_before
        self._loader.set_epoch(self._loader.next_epoch)  # tells the sampler the epoch
        self.begin()
        try:
            batches = iter(self._loader)
            if self._ahead is END:
                self._ahead = next(batches, END)
            while self._ahead is not END:
                batch, self._ahead = self._ahead, next(batches, END)
                self.end_of_dataloader = self._ahead is END
                self._open()
                yield batch
            if self._loss is not None:
                self._loss.close()
        finally:
            # If the loop stopped early, the batch fetched ahead comes first in the next epoch.
            self.end()

    @property
    def _fetched_before(self) -> int:
        """How many batches of the running or next epoch were fetched before it began."""
        runs = self._loader._state.runs is not None
        return self._over if runs else int(self._ahead is not END)

    def _open(self) -> None:
        """Let losses belong to the batch that the loop gets now, not to the one fetched ahead."""
        loss, wait = self._loss, 1 + (self._ahead is not END)
        if loss is None:
            return
        while len(loss.waiting) > wait:  # the loop never got that batch
            loss.waiting.popleft()
        if len(loss.waiting) == wait:
            loss.open_next()
        else:  # `loss_fn` was taken too late for this batch
            loss.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loader, with the batch that the loop gets next."""
        waits = self._ahead is not END
        waiting = self._loss.waiting if waits and self._loss is not None else ()
        selection = waiting[-1].selection if waiting else None
        sampler, seed = self._loader.sampler, SEEDED_BY.get(type(self._loader.sampler))
        return {
            "loader": self._loader.state_dict(),
            "seed": None if seed is None else getattr(sampler, seed),
            "over": self._over if waits else 0,
            "ahead": kit.seal((self._ahead, selection)) if waits else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`; a state that does not fit is refused, with no change."""
        loader, seed, over, ahead = kit.Saved(state).fields("loader", "seed", "over", "ahead")
        device, kind = self._accelerator.device, Selection | NoneType
        read = partial(kit.unpack_selected, device=device, kind=kind)
        batch, selection = ahead.maybe(read) or (END, None)
        more = over.whole(0, 1)
        drawn_from = seed.maybe(lambda saved: saved.whole(-SEEDS, SEEDS))
        loss = None if selection is None else self.loss_fn
        with loader.inside():
            self._loader.load_state_dict(loader.value)
        name = SEEDED_BY.get(type(self._loader.sampler))
        if name is not None and drawn_from is not None:
            setattr(self._loader.sampler, name, drawn_from)
        self._over, self._ahead = more, batch
        if loss is not None and selection is not None:
            loss.hand_out(self._ahead, selection)

    def _file(self, folder: str) -> kit.StateFile:
        rank, ranks = self._accelerator.process_index, self._accelerator.num_processes
        return kit.StateFile.of_rank(folder, self._name, rank, ranks)


def _loaders_of(accelerator: Accelerator) -> Loaders:
    """Return the loaders whose states an accelerator saves and loads, by name.

    References to them are weak, so that a loader and its model leave memory after training.
    """
    loaders = _loaders.get(accelerator)
    if loaders is None:
        loaders = _loaders[accelerator] = weakref.WeakValueDictionary()
        # register_for_checkpointing would write only the first process's state.
        accelerator.register_save_state_pre_hook(partial(_save, loaders))
        accelerator.register_load_state_pre_hook(partial(_load, loaders))
    return loaders


def _save(loaders: Loaders, models: Any, weights: Any, folder: str) -> None:
    for loader in loaders.values():
        loader._file(folder).save(loader.state_dict())


def _load(loaders: Loaders, models: Any, folder: str) -> None:
    for loader in loaders.values():
        loader.load_state_dict(loader._file(folder).load())


ENGINES = {
    DistributedType.MEGATRON_LM: "Megatron-LM runs forward and backward pass in one call, and so "
    "gives selection no losses by example",
    DistributedType.XLA: "under XLA, Accelerate's own loader ends each step of the device, which "
    "a loader that selects does not",
}
SPLITS = ("tp_size", "cp_size", "sp_size")


def own_shard(accelerator: Accelerator, loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a torch loader of this process's examples, ready for a `SelectiveLoader`.

    With one process, this is the loader itself, or the one inside a prepared loader. With several,
    a `DistributedSampler` with the same seed in every process replaces the loader's sampler, and
    shuffles if the loader did.
    """
    check_accelerator(accelerator)
    kind = type(loader)  # isinstance() would see the class of the loader inside a prepared one
    plain: DataLoader[Any] = getattr(loader, "base_dataloader", loader)
    if accelerator.num_processes == 1:
        return _seeded(plain)
    if issubclass(kind, data_loader.DataLoaderDispatcher):
        raise LoaderError(
            "with dispatch_batches, one process reads for all. Set dispatch_batches=False in "
            "Accelerate's DataLoaderConfiguration, or in the Trainer's accelerator_config=."
        )
    if not isinstance(plain.dataset, IterableDataset):
        return _deal_out(plain, accelerator)
    if not issubclass(kind, data_loader.DataLoaderShard):
        raise LoaderError(
            "every process would read the whole stream, because the loader is not prepared. Pass "
            "accelerator.prepare(loader)"
        )
    return plain


def check_accelerator(accelerator: Accelerator) -> None:
    """Refuse options that selection does not support."""
    engine, several = ENGINES.get(accelerator.distributed_type), accelerator.num_processes > 1
    split = getattr(accelerator, "parallelism_config", None)
    sizes = {name: getattr(split, name, 1) or 1 for name in SPLITS}
    shared = ", ".join(f"{name}={size}" for name, size in sizes.items() if size > 1)
    refuse(
        {
            f"{engine}. Use DDP, FSDP or DeepSpeed": engine,
            f"processes that share examples ({shared}) need the same batch, but selection gives "
            "each process examples of its own. Use data parallelism alone": shared,
            "split_batches cuts each batch among the processes, but selection fills one for each. "
            "Set split_batches=False, and divide the batch size by "
            f"{accelerator.num_processes}.": several and accelerator.split_batches,
            "even_batches=False lets processes get different numbers of batches, but selection "
            "ends when the first has none left. Set even_batches=True.": (
                several and not accelerator.even_batches
            ),
        }
    )


def _deal_out(loader: DataLoader[Any], accelerator: Accelerator) -> DataLoader[Any]:
    batches = loader.batch_sampler
    if isinstance(batches, data_loader.BatchSamplerShard):
        batches = batches.batch_sampler
    sampler, ranks = getattr(batches, "sampler", None), accelerator.num_processes
    own = type(sampler) is DistributedSampler and sampler.num_replicas == ranks
    if type(batches) is BatchSampler and own:
        return drawing(loader, sampler, batches)
    seed = getattr(sampler, "initial_seed", None)
    seeds = [torch.initial_seed() if seed is None else seed]
    broadcast_object_list(seeds)  # all processes draw the same order, by the first one's seed
    agreed = int(seeds[0]) % 2**62  # leaves room for the epoch's number, which torch adds
    place = {"num_replicas": ranks, "rank": accelerator.process_index}
    return deal_out(loader, batches, agreed, **place)


def _seeded(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a loader whose sampler already holds the generator that Accelerate would make.

    To resume within an epoch, the sampler's state at the epoch's start must be known.
    """
    batches = loader.batch_sampler
    inside: Any = getattr(batches, "sampler", None)
    if type(batches) is not BatchSampler or type(inside) is not Seedable:
        return loader
    sampler = copy.copy(inside)
    if sampler.generator is None:
        sampler.generator = torch.Generator().manual_seed(sampler.initial_seed)
    return drawing(loader, sampler, batches)
