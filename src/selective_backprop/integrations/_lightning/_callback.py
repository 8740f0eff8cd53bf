"""The callback follows which batch is trained on, logs selection, and saves its state."""

import inspect
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import distributed

import selective_backprop as sb
from selective_backprop.integrations import _kit as kit
from selective_backprop.integrations._lightning._passes import Passes


class SelectionCallback(Callback):
    """Add this to `Trainer(callbacks=[...])` if you train with a `LightningLoader`.

    At the end of each epoch it logs, through `self.log`:

    - `selection/rate`: the share of the examples that was trained on. Selected examples that are
      left for the next epoch count in that epoch;
    - `selection/cost`: the cost of scoring and training since training began. The unit is a forward
      pass of one example; a backward pass counts as two;
    - `selection/plain_cost`: what training on every example would have cost, in the same unit;
    - `selection/score_mean`: the mean of the recent scores that new scores are compared with.

    The callback adds the state of selection and each rank's random streams to Lightning's
    checkpoints. `trainer.fit(..., ckpt_path=...)` resumes also in the middle of an epoch.

    If a learning-rate schedule has `interval="step"`, set its `total_steps` or `T_max` to the
    number of steps without selection. The callback then steps it for skipped examples as well
    (`CandidateScheduler`). If epochs differ in length, Lightning calls `train_dataloader()` again.
    """

    def __init__(self) -> None:
        self._trainer: Trainer | None = None
        self._loader: Any = None
        self.passes: Passes | None = None  # of the current training, if anything is selected
        self._restored: kit.Saved | None = None
        self._put_streams: Callable[[], None] = lambda: None  # or restore a checkpoint's streams
        self._announced: int | None = None

    def passes_of(self, loader: Any, trainer: Trainer, make: Callable[[], Passes]) -> Passes:
        """Return the passes of this training; the first call makes them."""
        self._loader = loader
        if self.passes is not None:
            return self.passes
        passes = make()
        if self._restored is None:
            passes.loader.set_epoch(trainer.fit_loop.epoch_progress.current.processed)
        else:
            with self._restored.inside():
                passes.load_state_dict(self._restored.value)
            self._restored = None
            done = trainer.fit_loop.epoch_loop.batch_progress
            if done.is_last_batch and done.total.completed < done.total.processed:
                passes.end_pass(resumable=False)  # Lightning goes on with the next epoch
            self._put_streams()  # Lightning may fetch a batch at once
        self.passes = passes
        return passes

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a training that cannot work, and prepare for a new one."""
        if stage != "fit":
            return
        check_trainer(trainer, pl_module)
        self._restored = None
        if self.passes is not None and trainer is self._trainer:  # fit is called again
            self.passes.end_pass(resumable=False)  # Lightning begins an epoch
            self.passes.loader.set_epoch(trainer.fit_loop.epoch_progress.current.processed)
            self._restored = kit.Saved(self.passes.state_dict())
        self._trainer, self._loader, self.passes = trainer, None, None
        self._put_streams = lambda: None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse all loaders but a `LightningLoader`, and restore saved random streams."""
        if self._loader is None or trainer.train_dataloader is not self._loader:
            found = type(trainer.train_dataloader).__name__
            raise sb.ConfigurationError(
                f"SelectionCallback works with a LightningLoader, but training runs on a {found}. "
                "Return a single LightningLoader(loader, self, loss_fn, strategy) from "
                "train_dataloader(), or give it to fit()."
            )
        if self.passes is not None and self.passes.idle:
            self._put_streams()
        self._note_length()
        self._go_by_candidates(trainer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop Lightning from calling `train_dataloader()` again."""
        if trainer.reload_dataloaders_every_n_epochs:
            self._note_length()
        trainer.reload_dataloaders_every_n_epochs = 0

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        if self.passes is not None:
            self.passes.take()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        if self.passes is not None:
            self.passes.current = None

    def on_before_backward(self, *_: Any, **__: Any) -> None:
        """Refuse a step that ignored weights or losses, before it changes the model."""
        if self.passes is not None:
            self.passes.check_loss()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the pass, and log. If the next epoch's length differs, let Lightning ask for it."""
        passes = self.passes
        if passes is None:
            return
        stopping = trainer.max_steps != -1 and trainer.global_step >= trainer.max_steps
        before = passes.end_pass(resumable=stopping)
        if not trainer.barebones:
            pl_module.log_dict(measure(before, passes.loader), sync_dist=trainer.world_size > 1)
        if passes.sized and passes.length() != self._announced:
            trainer.reload_dataloaders_every_n_epochs = 1

    def on_exception(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        trainer.reload_dataloaders_every_n_epochs = 0

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the trainer as it was."""
        if stage == "fit":
            trainer.reload_dataloaders_every_n_epochs = 0
            for config in trainer.lr_scheduler_configs:
                if isinstance(config.scheduler, sb.CandidateScheduler):
                    config.scheduler = config.scheduler.scheduler

    def state_dict(self) -> dict[str, Any]:
        """Return every rank's state, on rank 0; all ranks must call this."""
        trainer, passes = self._trainer, self.passes
        if trainer is None or passes is None:
            return {}
        streams = kit.save_streams(trainer.strategy.root_device)
        done = trainer.fit_loop.epoch_loop.batch_progress.current
        passing = passes.state_dict(repeats=done.ready > done.processed)
        # On the CPU, or rank 0 would unpickle each rank's tensors on that rank's GPU.
        own = kit.move_batch({"passes": passing, "streams": streams}, torch.device("cpu"))
        if trainer.world_size == 1:
            return {"ranks": [own]}
        ranks = [None] * trainer.world_size if trainer.global_rank == 0 else None
        distributed.gather_object(own, ranks)
        return {"ranks": ranks}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict()` once the loader makes its passes."""
        trainer = self._trainer
        if trainer is None:  # only weights are loaded, as in Trainer.validate
            return
        (saved,) = kit.Saved(state_dict).fields("ranks")
        ranks = list(saved.items())
        if len(ranks) != trainer.world_size:
            raise sb.ConfigurationError(
                f"the checkpoint holds the selection of {len(ranks)} ranks, but there are "
                f"{trainer.world_size}. Continue with as many devices as before, or start a new "
                "training from its weights."
            )
        passes, streams = ranks[trainer.global_rank].fields("passes", "streams")
        self._put_streams = kit.read_streams(streams, trainer.strategy.root_device)
        self._restored = passes

    def _go_by_candidates(self, trainer: Trainer) -> None:
        """Step step-based schedules by candidates, if they were made for all candidates."""
        loader, count = self._loader.selective, trainer.accumulate_grad_batches
        if loader.planned_batches is None or loader.strategy.selector.terms.keeps_everything:
            return
        for config in trainer.lr_scheduler_configs:
            if config.interval == "step" and kit.end_of(config.scheduler) is not None:
                with suppress(sb.ConfigurationError):  # made for another length: left to the user
                    schedule: Any = sb.CandidateScheduler(
                        config.scheduler, loader, accumulation=count
                    )
                    config.scheduler = schedule

    def _note_length(self) -> None:
        passes = self.passes
        self._announced = passes.length() if passes is not None and passes.sized else None


def measure(before: sb.Stats, loader: sb.SelectiveLoader) -> dict[str, float]:
    """Return what to log: the rate since `before`, the costs so far, and the mean score."""
    after, scores = loader.stats, loader.scores
    values = {
        "rate": after.since(before).rate,
        "cost": float(after.cost),
        "plain_cost": float(after.plain_cost),
        "score_mean": math.nan if scores is None else scores.mean,
    }
    return {f"selection/{name}": value for name, value in values.items() if not math.isnan(value)}


def find_callback(trainer: Trainer) -> SelectionCallback:
    """Return the one `SelectionCallback` of a trainer."""
    found = [part for part in trainer.callbacks if isinstance(part, SelectionCallback)]
    if len(found) != 1:
        raise sb.ConfigurationError(
            f"a LightningLoader needs one SelectionCallback, but the trainer has {len(found)}: "
            "write Trainer(callbacks=[SelectionCallback()])"
        )
    return found[0]


def check_trainer(trainer: Trainer, module: LightningModule) -> None:
    """Refuse a training in which selection cannot work, before anything is loaded."""
    reloads, fits = trainer.reload_dataloaders_every_n_epochs, trainer.overfit_batches
    kit.refuse(
        {
            f"Trainer(strategy=...) is a {type(trainer.strategy).__name__}, but selection under "
            'Lightning works only on a single device and with strategy="ddp"': (
                not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy))
            ),
            f"Trainer(overfit_batches={fits}) repeats a few batches, but selection would choose "
            "others each time. Pass the plain loader, or load a torch.utils.data.Subset.": fits,
            f"Trainer(reload_dataloaders_every_n_epochs={reloads}) makes a loader without scores. "
            "Leave this out. A data set may change between epochs in its set_epoch().": reloads,
            "training_step(dataloader_iter) fetches its batches itself, so selection cannot know "
            "which batch it trains on. Write training_step(batch, batch_idx)": (
                "dataloader_iter" in inspect.signature(module.training_step).parameters
            ),
        }
    )
