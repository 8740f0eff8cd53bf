"""The loader that Lightning iterates, and the loss of its batches."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.utils.data import DataLoader

from selective_backprop._batches.losses import (
    LossFunction,
    average_examples,
    find_losses,
    find_outputs,
    is_no_cross_entropy,
)
from selective_backprop._core.errors import ConfigurationError, LoaderError
from selective_backprop._core.options import check_pad, choose
from selective_backprop._core.types import LossesOf
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.source import open_source
from selective_backprop.integrations._lightning._callback import SelectionCallback, find_callback
from selective_backprop.integrations._lightning._passes import Passes
from selective_backprop.integrations._lightning._seen import AsTrained, transfer_hooks
from selective_backprop.integrations._lightning._shards import as_lightning_would
from selective_backprop.integrations._lightning._trainer import (
    check_intervals,
    knows_lengths,
    length_of_training,
)
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._auto.entropies import ExcessLosses
from selective_backprop.strategies._collective import check_loss, check_strategy


class LightningLoader:
    """Wrap a data loader so that Lightning trains on the examples that a strategy selects.

    Return it from `train_dataloader()`, or give it to `Trainer.fit`, and add a `SelectionCallback`
    to the trainer. Batches look like those of the wrapped loader. Examples are scored as
    `training_step` would see them: on the module's device, in the trainer's precision, and after
    the batch-transfer hooks. With several devices, each gets its own part of the data, as without
    selection. The trainer's options set the length of training.

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
        loss_fn: LossFunction | None,
        strategy: Strategy,
        *,
        net: nn.Module | None = None,
        losses: LossesOf | None = None,
        batch_size: int | None = None,
        pad: Mapping[str, float] | None = None,
        nonfinite: NonFinite | str = NonFinite.RAISE,
    ) -> None:
        if isinstance(loader, (LightningLoader, SelectiveLoader)):
            raise LoaderError(f"the loader is a {type(loader).__name__}; wrap the one inside it")
        self._strategy = check_strategy(strategy)
        check_loss(self._strategy, is_no_cross_entropy(loss_fn))
        open_source(loader)  # refuse now a loader that cannot be wrapped later
        self._nonfinite = choose("nonfinite", nonfinite, NonFinite)
        _check_module(module, self._strategy, net, losses)
        self._loader, self._module, self._net = loader, module, net
        self._loss_fn, self._losses, self._batch_size = loss_fn, losses, batch_size
        self._pad = check_pad(pad)

    @property
    def dataset(self) -> Any:
        """The data set of the loader inside."""
        return self._loader.dataset

    @property
    def selective(self) -> SelectiveLoader:
        """The `SelectiveLoader` that makes the batches; it exists once `fit` runs."""
        return self._passes().loader

    def __len__(self) -> int:
        """Return the number of batches of the running or next epoch; TypeError if unknown."""
        return self._passes().length()

    def __bool__(self) -> bool:
        """Return True, because a loader without batches is refused when it is wrapped."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the epoch's remaining batches."""
        return self._passes().batches()

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state, because the callback saves the state of all ranks.

        Lightning would save the loader's state for one rank only, and only within epochs. It takes
        the presence of this method as a sign that the loader can resume within an epoch.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing, because `state_dict()` is empty."""

    def _passes(self) -> Passes:
        """Return the passes of the current training, which yield the batches."""
        trainer = getattr(self._module, "_trainer", None)
        if trainer is None:
            raise LoaderError(
                f"{type(self._module).__name__} has no trainer yet: only Trainer.fit can iterate a "
                "LightningLoader. For a loop of your own, use selective_backprop.SelectiveLoader."
            )
        return find_callback(trainer).passes_of(self, trainer, partial(self._begin, trainer))

    def _begin(self, trainer: Trainer) -> Passes:
        seen = partial(AsTrained, precision=trainer.precision_plugin, hooks=transfer_hooks(trainer))
        losses, outputs = None, find_outputs(self._losses, None)
        if self._loss_fn is not None or self._losses is not None:
            confidence = self._strategy.selector.terms.confidence
            average = ExcessLosses() if confidence else average_examples
            losses = seen(find_losses(self._loss_fn, self._losses, None, average=average))
        own = as_lightning_would(self._loader, trainer, self._strategy)
        epochs, progress = length_of_training(trainer, self._strategy, open_source(own).batches)
        device = trainer.strategy.root_device
        loader = SelectiveLoader(
            own,
            self._module if self._net is None else self._net,
            None,  # `Passes` records the losses
            self._strategy,
            losses=losses,
            outputs=None if outputs is None else seen(outputs),
            batch_size=self._batch_size,
            epochs=epochs,
            progress=progress,
            pad=self._pad,
            device=device,
            nonfinite=self._nonfinite,
            with_selection=True,
        )
        sized = _knows_length(loader) and knows_lengths(
            self._strategy, self._nonfinite, by_steps=progress is not None
        )
        check_intervals(trainer, self._strategy, sized=sized)
        return Passes(loader, device, self._loss_fn, sized=sized)


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

    Returns:
        The mean of the losses, each multiplied by its row's weight.

    Raises:
        LossError: if there is not one loss per row, or if a loss is not finite although the
            loader has `nonfinite="raise"`.
    """
    found = [part for part in module.trainer.callbacks if isinstance(part, SelectionCallback)]
    if not found or found[0].running is None or not module.trainer.training:
        return losses.mean()
    return found[0].running.loss(losses, targets, outputs)


def _knows_length(loader: SelectiveLoader) -> bool:
    try:
        len(loader)
    except TypeError:
        return False
    return True


def _check_module(module: Any, strategy: Strategy, net: Any, losses: Any) -> None:
    if not isinstance(module, LightningModule):
        hint = "pass self, and as net= the part that computes the outputs"
        origins = {kind.__module__.partition(".")[0] for kind in type(module).__mro__}
        if "pytorch_lightning" in origins:
            hint = "write `import lightning.pytorch as pl` in place of `import pytorch_lightning`"
        raise ConfigurationError(
            f"a lightning.pytorch.LightningModule is needed, got {type(module).__name__}: {hint}"
        )
    needs = strategy.needs
    if needs is None or not needs.model or not (needs.passes or needs.rescores):
        return
    if net is None and losses is None and not is_overridden("forward", module):
        raise ConfigurationError(
            f"{strategy.name} scores examples with the model, but {type(module).__name__} has no "
            "forward(). Pass the part that computes the outputs, such as net=self.net, or pass "
            "losses=callable(model, batch) -> one loss per example."
        )
