"""A Trainer with selection, in the methods that Transformers lets a Trainer override."""

from collections.abc import Mapping
from typing import Any

from transformers import Trainer

from selective_backprop import NonFinite, SelectiveLoader, Strategy
from selective_backprop.integrations._kit import check_options, check_strategy
from selective_backprop.integrations._transformers._checks import check_trainer
from selective_backprop.integrations._transformers._model_losses import RowLosses
from selective_backprop.integrations._transformers._selection import TrainerSelection


class SelectiveTrainer(Trainer):
    """Train with `transformers.Trainer` on the examples that a strategy selects.

    It takes the Trainer's arguments and the options below. To add selection to another Trainer,
    yours or another library's, derive from both: `class Mine(SelectiveTrainer, SFTTrainer)`.

    `num_train_epochs` counts passes over the data set, so training takes fewer steps than without
    selection. While training runs, `args.max_steps` is this smaller number of steps, and the
    learning rate decays over it. With strategies such as `auto`, or data sets of packed rows, this
    number is not known in advance. `args.max_steps` is then the number of steps without selection,
    the learning rate decays with the number of examples seen, and training ends after the last
    epoch. An update always has `gradient_accumulation_steps` full batches; batches left over come
    first in the next epoch. Checkpoints hold the state of selection, and logs tell its counts and
    its cost.

    Args:
        args: positional arguments of the Trainer.
        strategy: what to select and when, such as `selective_backprop(rate=1/3)`.
        losses: `callable(outputs, batch)` that returns one loss per row; by default the model's own
            loss is used. If the strategy weighs rows, the training loss is their weighted mean.
        pad: the value to pad with on the right, by key, for tensors whose width differs from batch
            to batch. Usual keys such as `input_ids` and `labels` have defaults.
        nonfinite: what to do with losses that are not finite, as in `SelectiveLoader`.
        options: keyword arguments of the Trainer.

    Raises:
        ConfigurationError: if an option of the Trainer or a combination of options cannot work.
    """

    def __init__(
        self,
        *args: Any,
        strategy: Strategy,
        losses: RowLosses | None = None,
        pad: Mapping[str, float] | None = None,
        nonfinite: NonFinite | str = NonFinite.RAISE,
        **options: Any,
    ) -> None:
        strategy = check_strategy(strategy)
        check_options(pad, nonfinite)
        super().__init__(*args, **options)
        check_trainer(self, strategy, losses)
        self.selection = TrainerSelection(self, strategy, losses, pad, nonfinite)
        # First, so that all other callbacks see how many epochs are done.
        self.callback_handler.callbacks.insert(0, self.selection)

    @property
    def selective_loader(self) -> SelectiveLoader | None:
        """The selective loader of the current or last training; None before the first."""
        return self.selection.loader

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any
    ) -> Any:
        """Train, or resume from a checkpoint that was saved with selection."""
        with self.selection.training(resume_from_checkpoint):
            return super().train(resume_from_checkpoint, *args, **options)

    def get_train_dataloader(self) -> Any:
        """Return batches of selected examples from the Trainer's own loader."""
        return self.selection.wrap(super().get_train_dataloader())

    def training_step(self, model: Any, *args: Any, **options: Any) -> Any:
        """Train on a batch, and record its losses if the strategy selects by them."""
        with self.selection.listening(model):
            return super().training_step(model, *args, **options)

    def _prepare_inputs(self, inputs: Any) -> Any:
        """Hide selection's keys from the model, and from any class's `compute_loss`."""
        return self.selection.take(super()._prepare_inputs(inputs))

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the Trainer's own loss, weighted if the strategy reweights."""
        weighed = self.selection.weigh(model, num_items_in_batch)
        if weighed is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return weighed if return_outputs else weighed[0]

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """Log; if the training loss is logged, add selection's counts."""
        if logs.keys() & {"loss", "train_loss"}:
            logs.update(self.selection.counts())
        super().log(logs, *args, **options)
