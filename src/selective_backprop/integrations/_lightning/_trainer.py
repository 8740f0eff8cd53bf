"""Check a trainer's options, and find the length of training that they set."""

import inspect
import math
from collections.abc import Callable

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from selective_backprop import ConfigurationError, NonFinite, Strategy
from selective_backprop.integrations._kit import refuse
from selective_backprop.selectors import Draw


def check_trainer(trainer: Trainer, module: LightningModule) -> None:
    """Refuse a training in which selection cannot work, before anything is loaded."""
    reloads = trainer.reload_dataloaders_every_n_epochs
    refuse(
        {
            f"Trainer(strategy=...) is a {type(trainer.strategy).__name__}, which shards the model "
            "or runs the step itself. Selection under Lightning works on a single device and with "
            'strategy="ddp"': (
                not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy))
            ),
            f"Trainer(overfit_batches={trainer.overfit_batches}) trains on the same few batches "
            "again and again, but selection would choose others each time. Give the trainer the "
            "plain loader, or leave overfit_batches out and load a torch.utils.data.Subset.": (
                trainer.overfit_batches
            ),
            f"Trainer(reload_dataloaders_every_n_epochs={reloads}) makes a new loader, but scores "
            "and waiting examples belong to the old one. Leave this option out. If your data set "
            "changes between epochs, change it in its set_epoch().": reloads,
            "training_step(dataloader_iter) fetches its batches itself, so selection cannot know "
            "which batch it trains on. Write training_step(batch, batch_idx)": (
                "dataloader_iter" in inspect.signature(module.training_step).parameters
            ),
        }
    )


def check_intervals(trainer: Trainer, strategy: Strategy, *, sized: bool) -> None:
    """Refuse options that rely on an epoch's length if it changes, or is unknown (not `sized`)."""
    every = getattr(trainer, "val_check_interval", 1.0)  # a length of time is stored elsewhere
    for name, value, instead in (
        ("limit_train_batches", trainer.limit_train_batches, ""),
        ("val_check_interval", every, ", and check_val_every_n_epoch=None"),
    ):
        if not sized and isinstance(value, float) and value != 1.0:
            raise ConfigurationError(
                f"Trainer({name}={value}) is a fraction of an epoch, but {strategy.name} does not "
                f"know in advance how many batches an epoch has. Give a number, an int{instead}."
            )
    within = trainer.check_val_every_n_epoch is not None
    if within and isinstance(every, int) and not strategy.selector.terms.keeps_everything:
        raise ConfigurationError(
            f"Trainer(val_check_interval={every}) counts the batches of one epoch. With "
            f"{strategy.name} an epoch may have fewer than {every}, and would not be validated. "
            "Add check_val_every_n_epoch=None, to count the batches of all epochs."
        )


def length_of_training(
    trainer: Trainer, strategy: Strategy, batches: int | None
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
        raise ConfigurationError(
            f"{strategy.name} changes at fractions of training, but the length of training is "
            "unknown: give the Trainer max_epochs= or max_steps="
        )
    return None, None


def knows_lengths(strategy: Strategy, nonfinite: NonFinite, *, by_steps: bool) -> bool:
    """Return whether a strategy's number of batches is known before each epoch.

    `by_steps` says whether `max_steps` may end training; selection may then start within an epoch.
    """
    needs, terms, schedule = strategy.needs, strategy.selector.terms, strategy.schedule
    if terms.keeps_everything:
        return True
    if terms.draw is not Draw.EXACT or schedule.gate is not None:
        return False
    if needs is not None and (needs.remembers or nonfinite is NonFinite.SKIP):
        return False
    return not (by_steps and schedule.uses_fractions)
