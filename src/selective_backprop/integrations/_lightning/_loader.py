"""The loader that Lightning iterates, for one rank's examples, and the loss of its batches."""

import copy
import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from lightning.fabric.utilities.seed import pl_worker_init_function
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins import Precision
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.utils import data
from torch.utils.data import DataLoader

import selective_backprop as sb
from selective_backprop.integrations import _kit as kit
from selective_backprop.integrations._lightning._callback import SelectionCallback, find_callback
from selective_backprop.integrations._lightning._passes import Passes
from selective_backprop.selectors import Draw


class LightningLoader:
    """Wrap a data loader so that Lightning trains on the examples that a strategy selects.

    Return it from `train_dataloader()`, or give it to `Trainer.fit`, and add a `SelectionCallback`
    to the trainer. Examples are scored as `training_step` would see them: on the module's device,
    in the trainer's precision, and after the batch-transfer hooks. With several devices, each gets
    its own part of the data, as without selection.

    `len()` is exact in every epoch if the strategy draws an exact number of examples, by newly
    computed scores or without scores. Otherwise it raises `TypeError`. Lightning then fetches one
    batch ahead, and so this batch is scored before the current training step.

    Args:
        loader: a `torch.utils.data.DataLoader`, of any data set, sampler and collate function.
        module: the module in training.
        loss_fn: as for `SelectiveLoader`; may be None if `losses` is given or nothing is scored.
        strategy: what to select and when.
        net: the part of the module that maps a batch's inputs to the outputs that `loss_fn`
            takes; by default the module itself.
        losses: as for `SelectiveLoader`, but `net` is passed as the model.
        batch_size: as for `SelectiveLoader`; needed if `loader` has no batch size.
        pad: as for `SelectiveLoader`.
        nonfinite: as for `SelectiveLoader`.

    Raises:
        ConfigurationError: if an option or a combination of options cannot work. The trainer's
            options are checked when training starts.
        LoaderError: if the loader cannot be wrapped.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        module: LightningModule,
        loss_fn: Callable[..., Any] | None,
        strategy: sb.Strategy,
        *,
        net: nn.Module | None = None,
        losses: Callable[[nn.Module, Any], Tensor] | None = None,
        batch_size: int | None = None,
        pad: Mapping[str, float] | None = None,
        nonfinite: sb.NonFinite | str = sb.NonFinite.RAISE,
    ) -> None:
        self._strategy = kit.check_strategy(strategy)
        self._given = kit.GivenLoss(loss_fn, losses, strategy)
        kit.open_source(loader)
        self._pad, self._nonfinite = kit.check_options(pad, nonfinite)
        _check_module(module, self._strategy, net, losses)
        self._loader, self._module, self._net = loader, module, net
        self._batch_size = batch_size

    @property
    def dataset(self) -> Any:
        """The data set of the loader inside."""
        return self._loader.dataset

    @property
    def selective(self) -> sb.SelectiveLoader:
        """The `SelectiveLoader` that makes the batches; it exists once `fit` runs."""
        return self._passes().loader

    def __len__(self) -> int:
        return self._passes().length()

    def __bool__(self) -> bool:
        """Return True, because a loader without batches is refused when it is wrapped."""
        return True

    def __iter__(self) -> Iterator[Any]:
        return self._passes().batches()

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state, because the callback saves the state of all ranks."""
        return {}  # Lightning sees by this method that the loader can resume within an epoch

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing, because `state_dict()` is empty."""

    def _passes(self) -> Passes:
        trainer = getattr(self._module, "_trainer", None)
        if trainer is None:
            raise sb.LoaderError(
                f"{type(self._module).__name__} has no trainer yet: only Trainer.fit can iterate a "
                "LightningLoader. For a loop of your own, use selective_backprop.SelectiveLoader."
            )
        return find_callback(trainer).passes_of(self, trainer, partial(self._begin, trainer))

    def _begin(self, trainer: Trainer) -> Passes:
        hooks = transfer_hooks(trainer)
        losses, outputs = (
            None if each is None else partial(as_trained, each, trainer.precision_plugin, hooks)
            for each in (self._given.losses, self._given.outputs)
        )
        own = as_lightning_would(self._loader, trainer, self._strategy)
        epochs, progress = length_of_training(trainer, self._strategy, kit.known_length(own))
        device = trainer.strategy.root_device
        loader = sb.SelectiveLoader(
            own,
            self._module if self._net is None else self._net,
            None,  # `Passes` records the losses
            self._strategy,
            losses=losses,
            outputs=outputs,
            batch_size=self._batch_size,
            epochs=epochs,
            progress=progress,
            pad=self._pad,
            device=device,
            nonfinite=self._nonfinite,
            with_selection=True,
        )
        sized = kit.known_length(loader) is not None and knows_lengths(
            self._strategy, self._nonfinite, by_steps=progress is not None
        )
        check_intervals(trainer, self._strategy, sized=sized)
        return Passes(loader, device, self._given, sized=sized)


def selected_loss(
    module: LightningModule,
    losses: Tensor,
    targets: Tensor | None = None,
    outputs: Tensor | None = None,
) -> Tensor:
    """Record the losses of a training batch's rows, and return their weighted mean.

    If the strategy reweights rows or selects by recorded losses, `training_step` must return what
    this function returns. With other strategies, or without a `LightningLoader`, it returns the
    plain mean.

    Args:
        module: the module in training.
        losses: one loss per row of the batch, `[row]`, not detached from the graph.
        targets: targets of the losses, as for `SelectiveLoader.record`.
        outputs: the model's outputs, `[row, class]`, as for `SelectiveLoader.record`. If the loss
            has label smoothing, class weights or probabilities as targets, strategies such as
            `auto` need the outputs. `LightningLoader` then needs this loss as its `loss_fn`.

    Raises:
        LossError: if there is not one loss per row, or if a loss is not finite although the
            loader has `nonfinite="raise"`.
    """
    found = [part for part in module.trainer.callbacks if isinstance(part, SelectionCallback)]
    passes = found[0].passes if found else None
    if passes is None or not module.trainer.training:
        return losses.mean()
    return passes.loss(losses, targets, outputs)


def _check_module(module: Any, strategy: sb.Strategy, net: Any, losses: Any) -> None:
    if not isinstance(module, LightningModule):
        hint = "pass self, and as net= the part that computes the outputs"
        origins = {kind.__module__.partition(".")[0] for kind in type(module).__mro__}
        if "pytorch_lightning" in origins:
            hint = "write `import lightning.pytorch as pl` in place of `import pytorch_lightning`"
        raise sb.ConfigurationError(
            f"a lightning.pytorch.LightningModule is needed, got {type(module).__name__}: {hint}"
        )
    needs = strategy.needs
    if needs is None or not needs.model or not (needs.passes or needs.rescores):
        return
    if net is None and losses is None and not is_overridden("forward", module):
        raise sb.ConfigurationError(
            f"{strategy.name} scores examples with the model, but {type(module).__name__} has no "
            "forward(). Pass the part that computes the outputs, such as net=self.net, or pass "
            "losses=callable(model, batch) -> one loss per example."
        )


def as_trained(
    function: Callable[[nn.Module, Any], Any],
    precision: Precision,
    hooks: tuple[Callable[[Any], Any], ...],
    model: nn.Module,
    batch: Any,
) -> Any:
    """Return the function's result of a batch that is prepared as for `training_step`."""
    batch = precision.convert_input(batch)
    if hooks:  # a copy, because the batch itself goes through them later, in training
        batch = kit.map_tensors(torch.clone, batch)
    for hook in hooks:
        batch = hook(batch)
    with precision.forward_context():
        return function(model, batch)


def transfer_hooks(trainer: Trainer) -> tuple[Callable[[Any], Any], ...]:
    """Return the user's own hooks that a batch goes through before a step."""
    found: list[Callable[[Any], Any]] = []
    for name in ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"):
        for owner in (trainer.datamodule, trainer.lightning_module):
            if owner is not None and is_overridden(name, owner):
                options = {"dataloader_idx": 0}
                if name == "transfer_batch_to_device":
                    options["device"] = trainer.strategy.root_device
                found.append(partial(getattr(owner, name), **options))
                break
    return tuple(found)


def as_lightning_would(
    loader: DataLoader[Any], trainer: Trainer, strategy: sb.Strategy
) -> DataLoader[Any]:
    """Return a copy of the loader for this rank to iterate.

    A `DistributedSampler` with Lightning's seed divides the examples, unless the loader has its own
    `DistributedSampler`, or the trainer has `use_distributed_sampler=False`. Workers are seeded if
    `seed_everything(workers=True)` was called.
    """
    batches, sampler = loader.batch_sampler, loader.sampler
    held = (batches, getattr(batches, "sampler", None), sampler)
    whole = not any(isinstance(part, data.DistributedSampler) for part in held)
    clone = copy.copy(loader)
    if trainer.world_size > 1 and whole and not isinstance(loader.dataset, data.IterableDataset):
        if trainer._accelerator_connector.use_distributed_sampler:
            place, seed = trainer.distributed_sampler_kwargs or {}, os.environ.get("PL_GLOBAL_SEED")
            clone = kit.deal_out(loader, batches, int(seed or 0), **place)
        else:
            _check_memory(batches, strategy)
    if int(os.environ.get("PL_SEED_WORKERS", 0)) and clone.worker_init_fn is None:
        clone.worker_init_fn = partial(pl_worker_init_function, rank=trainer.global_rank)
    return clone


def _check_memory(batches: Any, strategy: sb.Strategy) -> None:
    """Refuse to remember examples by index if each rank may have a data set of its own."""
    undivided = type(batches) is data.BatchSampler
    undivided = undivided and type(batches.sampler) in (data.RandomSampler, data.SequentialSampler)
    if undivided and strategy.needs is not None and strategy.needs.remembers:
        raise sb.ConfigurationError(
            f"{strategy.name} remembers examples by index, but with use_distributed_sampler=False "
            "it may mean another on each rank. Give each a DistributedSampler of the whole data, "
            "or choose a strategy that remembers nothing, such as selective_backprop(rate=1/3)."
        )


def check_intervals(trainer: Trainer, strategy: sb.Strategy, *, sized: bool) -> None:
    """Refuse options that rely on an epoch's length if it changes, or is unknown (not `sized`)."""
    every = getattr(trainer, "val_check_interval", 1.0)  # a length of time is stored elsewhere
    for name, value, instead in (
        ("limit_train_batches", trainer.limit_train_batches, ""),
        ("val_check_interval", every, ", and check_val_every_n_epoch=None"),
    ):
        if not sized and isinstance(value, float) and value != 1.0:
            raise sb.ConfigurationError(
                f"Trainer({name}={value}) is a fraction of an epoch, but {strategy.name} does not "
                f"know in advance how many batches an epoch has. Give a number, an int{instead}."
            )
    within = trainer.check_val_every_n_epoch is not None
    if within and isinstance(every, int) and not strategy.selector.terms.keeps_everything:
        raise sb.ConfigurationError(
            f"Trainer(val_check_interval={every}) counts one epoch's batches, with {strategy.name} "
            f"maybe fewer than {every}. Add check_val_every_n_epoch=None, to count all epochs'."
        )


def length_of_training(
    trainer: Trainer, strategy: sb.Strategy, batches: int | None
) -> tuple[float | None, Callable[[], float] | None]:
    """Return the length of training: `epochs` or `progress`, as `SelectiveLoader` takes them.

    If `max_steps` may end training, `progress` returns the fraction of the steps or of the epochs
    that is done, whichever is larger. Otherwise `epochs` is `max_epochs`, or None if unlimited.
    `batches` is the number of the data loader's batches in an epoch; None if unknown.
    """
    steps, epochs = trainer.max_steps, trainer.max_epochs or 0  # -1 if unlimited
    most = math.inf  # steps in all epochs; optimised by hand, a batch may be several
    if epochs > 0 and batches is not None and trainer.lightning_module.automatic_optimization:
        most = epochs * math.ceil(batches / trainer.accumulate_grad_batches)
    if 0 < steps < most:

        def progress() -> float:
            by_epochs = trainer.current_epoch / epochs if epochs > 0 else 0.0
            return min(1.0, max(trainer.global_step / steps, by_epochs))

        return None, progress
    if epochs > 0:
        return epochs, None
    if strategy.schedule.uses_fractions or strategy.selector.terms.paced:
        raise sb.ConfigurationError(
            f"{strategy.name} changes at fractions of training, but the length of training is "
            "unknown: give the Trainer max_epochs= or max_steps="
        )
    return None, None


def knows_lengths(strategy: sb.Strategy, nonfinite: sb.NonFinite, *, by_steps: bool) -> bool:
    """Return whether a strategy's number of batches is known before each epoch.

    `by_steps` says whether `max_steps` may end training; selection may then start within an epoch.
    """
    needs, terms, schedule = strategy.needs, strategy.selector.terms, strategy.schedule
    varies = terms.draw is not Draw.EXACT or schedule.gate is not None
    varies = varies or (by_steps and schedule.uses_fractions)
    if needs is not None:
        varies = varies or needs.remembers or nonfinite is sb.NonFinite.SKIP
    return terms.keeps_everything or not varies
