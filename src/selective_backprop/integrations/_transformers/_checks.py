"""Check a Trainer's options before training starts."""

from collections.abc import Mapping
from typing import Any

from selective_backprop import Strategy
from selective_backprop.integrations._accelerate._shard import check_accelerator
from selective_backprop.integrations._kit import Padding, check_loss, refuse
from selective_backprop.integrations._transformers._model_losses import loss_of_numbers

# The losses that this adapter can weigh by row.
KNOWN = {
    ("transformers.trainer", "Trainer.compute_loss"),
    ("trl.trainer.sft_trainer", "SFTTrainer.compute_loss"),
    (f"{__package__}._trainer", "SelectiveTrainer.compute_loss"),
}


def check_trainer(trainer: Any, strategy: Strategy, losses: Any) -> None:
    """Refuse options of a Trainer that selection cannot honour."""
    check_accelerator(trainer.accelerator)
    args, config = trainer.args, getattr(trainer.model, "config", None)
    refuse(
        {
            "auto_find_batch_size=True starts again with smaller batches when memory runs out, but "
            "by then the model has been trained and selection has been set up for larger batches. "
            "Set per_device_train_batch_size to what fits.": args.auto_find_batch_size,
            "fsdp= has not been tested with selection in the Trainer. Use DDP, or write your own "
            "loop with SelectiveLoader, which is tested with FSDP.": args.fsdp,
            "DataParallel (several GPUs in one process) has not been tested. Start one process for "
            "each GPU: torchrun --nproc-per-node N.": args.n_gpu > 1,
            "train_sampling_strategy='batch_rebalance' groups rows so that processes have equal "
            "work, but selection regroups them. Use 'random' or 'group_by_length'.": (
                getattr(args, "train_sampling_strategy", None) == "batch_rebalance"
            ),
            "enable_jit_checkpoint=True saves without telling callbacks, so the state of selection "
            "would be missing. Use save_strategy='steps'.": (
                getattr(args, "enable_jit_checkpoint", False)
            ),
        }
    )
    if losses is None:
        check_loss(strategy, loss_of_numbers(trainer.model))
    name, reweights, needs = strategy.name, strategy.selector.terms.reweights, strategy.needs
    given = trainer.compute_loss_func is not None
    own = "compute_loss_func" if given else _find_own_loss(type(trainer))
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
            f"{name} weighs the rows of a batch, but {found} cannot be weighted by row. Leave it "
            "out, pass losses=callable(outputs, batch) -> one loss per row if you need your own, "
            "or use a strategy without weights.": reweights and applies
            for found, applies in fixed.items()
        }
    )
    reads = needs is not None and losses is None and (given or needs.recordings)
    refuse(
        {
            f"{own} returns one loss for a batch, but selection needs one per row. Pass "
            "losses=callable(outputs, batch) -> one loss per row as well.": own and reads
        }
    )


def _find_own_loss(trainer: type) -> str | None:
    """Return which `compute_loss` of a Trainer's classes is not one that this adapter knows."""
    for each in trainer.__mro__:
        function = vars(each).get("compute_loss")
        place = tuple(getattr(function, name, None) for name in ("__module__", "__qualname__"))
        if function is not None and place not in KNOWN:
            return f"{each.__name__}.compute_loss"
    return None


def find_padding(tokenizer: Any, config: Any, given: Mapping[str, float] | None) -> Padding:
    """Return the padding value of each key, for joining rows of different lengths.

    Collators that pad to a batch's longest row leave batches of different widths. Usual keys have
    their usual padding value, unless `given` has another.
    """
    ids = (getattr(each, "pad_token_id", None) for each in (tokenizer, config))
    token = next((each for each in ids if isinstance(each, int) and each >= 0), 0)
    usual = {
        "input_ids": token,
        "attention_mask": 0,
        "token_type_ids": getattr(tokenizer, "pad_token_type_id", None) or 0,
        "special_tokens_mask": 1,
        "labels": -100,
        "decoder_input_ids": token,
        "decoder_attention_mask": 0,
    }
    return Padding(given or {}, usual)
