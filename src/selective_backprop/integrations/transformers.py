"""Selection in the Trainer of Hugging Face Transformers.

    trainer = SelectiveTrainer(model, args, strategy=sb.selective_backprop(rate=1 / 3), ...)

The Trainer's own loader is wrapped where the Trainer makes it, and its loop is left alone. Weights
and indices of the selected rows ride in the batch under keys of their own, which `compute_loss`
takes out again.
"""

from collections.abc import Mapping
from typing import Any

from selective_backprop._core.options import check_pad
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.rows import Leftovers
from selective_backprop.integrations._versions import require
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._collective import check_strategy

require("transformers", "5.0")
require("accelerate", "1.0.1")

# Imported when the versions are known to fit, as what is imported may be missing in older ones.
from transformers import Trainer  # noqa: E402

from selective_backprop.integrations._model_losses import RowLosses  # noqa: E402
from selective_backprop.integrations._trainer_checks import check_trainer  # noqa: E402
from selective_backprop.integrations._trainer_selection import (  # noqa: E402
    Keeper,
    TrainerOptions,
    TrainerSelection,
)
from selective_backprop.integrations._updates import take_keys  # noqa: E402

__all__ = ["SelectiveTrainer"]


class SelectiveTrainer(Trainer):
    """Train with `transformers.Trainer` on the examples worth training on.

    It takes what the Trainer takes, and the options below. A Trainer of your own, or of another
    library, is made selective by deriving from both: `class Mine(SelectiveTrainer, SFTTrainer)`.

    `num_train_epochs` counts passes over the data set, so that fewer steps come out of it than
    without selection: as many as `args.max_steps` says while training runs, by which the learning
    rate decays. Where that cannot be known ahead, `max_steps` must be given. An update always has
    `gradient_accumulation_steps` full batches; what an epoch leaves over goes first in the next.

    Checkpoints hold the state of selection, and `train(resume_from_checkpoint=…)` goes on from it.
    Logs say how many examples were candidates, scored and kept since training began, and the cost
    so far as a share of training on every candidate.

    Args:
        args: as of the Trainer, by position.
        strategy: what to select and when, such as `selective_backprop(rate=1/3)`.
        losses: `callable(outputs, batch)` that returns one loss per row of what the model returned
            for a batch; by default the loss that the model takes for its labels.
        pad: right-padding value by key, for tensors whose width differs from batch to batch; by
            default known for the usual names.
        leftovers: what becomes of an incomplete window at an epoch's end, as in `SelectiveLoader`.
        nonfinite: what to do with losses that are not finite, as in `SelectiveLoader`.
        options: as of the Trainer, by name.

    Raises:
        ConfigurationError: if an option of the Trainer, or a combination, cannot work.
    """

    def __init__(
        self,
        *args: Any,
        strategy: Strategy,
        losses: RowLosses | None = None,
        pad: Mapping[str, float] | None = None,
        leftovers: Leftovers | str = Leftovers.CARRY,
        nonfinite: NonFinite | str = NonFinite.RAISE,
        **options: Any,
    ) -> None:
        strategy = check_strategy(strategy)
        check_pad(pad)
        super().__init__(*args, **options)
        check_trainer(self, strategy, losses)
        selection_options = TrainerOptions(strategy, losses, pad, leftovers, nonfinite)
        self.selection = TrainerSelection(self, selection_options)
        self.add_callback(Keeper(self.selection))

    @property
    def selective_loader(self) -> SelectiveLoader | None:
        """What selects, of the training that runs or ran last; None before."""
        return self.selection.loader

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any
    ) -> Any:
        """Train, or go on from a checkpoint; as the Trainer's.

        Raises:
            ConfigurationError: if the checkpoint was saved without selection.
        """
        with self.selection.training(resume_from_checkpoint):
            return super().train(resume_from_checkpoint, *args, **options)

    def get_train_dataloader(self) -> Any:
        """Return the Trainer's own batches, of selected examples.

        Raises:
            ConfigurationError: if the number of steps cannot be known and is not given.
            LoaderError: if the strategy cannot work with the data set.
        """
        return self.selection.wrap(super().get_train_dataloader())

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the Trainer's own loss, weighed where the strategy says so; and record losses."""
        batch, selection = take_keys(inputs)
        if selection is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        weighed = self.selection.weigh(model, batch, selection.weights, num_items_in_batch)
        loss, outputs = weighed or super().compute_loss(
            model, dict(batch), True, num_items_in_batch
        )
        self.selection.record(selection, outputs, batch)
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """Log, and with the training loss also what selection did so far."""
        if logs.keys() & {"loss", "train_loss"}:
            logs.update(self.selection.counts())
        super().log(logs, *args, **options)
