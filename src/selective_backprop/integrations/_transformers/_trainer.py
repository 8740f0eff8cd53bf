"""A Trainer with selection, in the methods that Transformers lets a Trainer override."""

from collections.abc import Mapping
from typing import Any

from transformers import Trainer

from selective_backprop import NonFinite, SelectiveLoader, Strategy
from selective_backprop.integrations._accelerate._loader import check_accelerator
from selective_backprop.integrations._kit import check_loss, check_options, check_strategy, refuse
from selective_backprop.integrations._transformers._model_losses import RowLosses, loss_of_numbers
from selective_backprop.integrations._transformers._selection import TrainerSelection

# The losses that this adapter can weigh by row.
KNOWN = {
    ("transformers.trainer", "Trainer.compute_loss"),
    ("trl.trainer.sft_trainer", "SFTTrainer.compute_loss"),
    (__name__, "SelectiveTrainer.compute_loss"),
}


class SelectiveTrainer(Trainer):
    """Train with `transformers.Trainer` on the examples that a strategy selects.

    It takes the Trainer's arguments and the options below. To add selection to another Trainer,
    yours or another library's, derive from both: `class Mine(SelectiveTrainer, SFTTrainer)`.

    `num_train_epochs` counts passes over the data set, so training takes fewer steps than without
    selection. In training, `args.max_steps` is their number, over which the learning rate decays.
    With strategies such as `auto`, or data sets of packed rows, it is not known in advance:
    `args.max_steps` is then the number without selection, the learning rate decays with the number
    of examples seen, and training ends after the last epoch. An update always has
    `gradient_accumulation_steps` full batches; batches left over come first in the next epoch.
    Checkpoints hold the state of selection, and logs tell its counts and its cost.

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
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
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


def check_trainer(trainer: Any, strategy: Strategy, losses: Any) -> None:
    """Refuse options of a Trainer that selection cannot honour."""
    check_accelerator(trainer.accelerator)
    if losses is None:
        check_loss(strategy, loss_of_numbers(trainer.model))
    args, config = trainer.args, getattr(trainer.model, "config", None)
    state, collator = trainer.accelerator.state, type(trainer.data_collator).__name__
    name, reweights, needs = strategy.name, strategy.selector.terms.reweights, strategy.needs
    given = trainer.compute_loss_func is not None
    own = "compute_loss_func" if given else _find_own_loss(type(trainer))
    reads = needs is not None and losses is None and (given or needs.recordings)
    experts = getattr(trainer, "aux_loss_enabled", False)
    fixed = {
        "loss_type='dft'": getattr(args, "loss_type", None) == "dft",
        "the auxiliary loss of a mixture of experts": (
            experts or getattr(config, "output_router_logits", False)
        ),
        "label_smoothing_factor beside losses=": losses is not None and trainer.label_smoother,
        f"{own}, which returns one loss for all rows,": own,
    }
    refuse(
        {
            "auto_find_batch_size=True would begin again with smaller batches, in the middle of "
            "selection. Set per_device_train_batch_size to what fits.": args.auto_find_batch_size,
            "FSDP1 wraps the model, but selection scores with it as it is. Use FSDP2: version=2 in "
            "fsdp_config, or fsdp_version=2 in Accelerate's configuration.": (
                getattr(getattr(state, "fsdp_plugin", None), "fsdp_version", 2) != 2
            ),
            "DataParallel (several GPUs in one process) divides batches among copies of the model, "
            "but selection would score whole batches on the first GPU. Start one process for each "
            "GPU: torchrun --nproc-per-node N.": args.n_gpu > 1,
            f"{collator} makes two rows of an example, a preferred answer and another, but "
            "selection chooses rows. Train on preferences without SelectiveTrainer.": (
                collator.endswith("Preference") and "Unpaired" not in collator  # TRL's names
            ),
            "train_sampling_strategy='batch_rebalance' groups rows so that processes have equal "
            "work, but selection regroups them. Use 'random' or 'group_by_length'.": (
                getattr(args, "train_sampling_strategy", None) == "batch_rebalance"
            ),
            "enable_jit_checkpoint=True saves without telling callbacks, so the state of selection "
            "would be missing. Use save_strategy='steps'.": args.enable_jit_checkpoint,
            **{
                f"{name} weighs the rows of a batch, but {found} cannot be weighted by row. Leave "
                "it out, pass losses=callable(outputs, batch) -> one loss per row if you need your "
                "own, or use a strategy without weights.": reweights and applies
                for found, applies in fixed.items()
            },
            f"{own} returns one loss for a batch, but selection needs one per row. Pass "
            "losses=callable(outputs, batch) -> one loss per row as well.": own and reads,
        }
    )


def _find_own_loss(trainer: type) -> str | None:
    """Return which `compute_loss` of a Trainer's classes is not one that this adapter knows."""
    found = ((each.__name__, vars(each).get("compute_loss")) for each in trainer.__mro__)
    own = (name for name, of in found if of and (of.__module__, of.__qualname__) not in KNOWN)
    return next((f"{name}.compute_loss" for name in own), None)
