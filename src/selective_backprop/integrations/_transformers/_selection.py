"""What selection adds to a Trainer: a loader, losses, and state in checkpoints."""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader
from transformers import TrainerCallback, optimization
from transformers.trainer_utils import get_last_checkpoint

import selective_backprop as sb
from selective_backprop.integrations import _kit as kit
from selective_backprop.integrations._accelerate._loader import own_shard
from selective_backprop.integrations._kit import Padding, StateFile
from selective_backprop.integrations._transformers import _model_losses as model_losses
from selective_backprop.integrations._transformers import _updates
from selective_backprop.integrations._transformers._documents import PADDING, Packing, find_packing
from selective_backprop.integrations._transformers._model_losses import ModelLosses, OwnLosses
from selective_backprop.integrations._transformers._updates import Updates, take_keys

# Schedules that follow the evaluations. Early versions of Transformers have no GreedyLR.
BY_METRIC = (ReduceLROnPlateau, getattr(optimization, "GreedyLR", ReduceLROnPlateau))


class TrainerSelection(TrainerCallback):
    """Select from a Trainer's own loader, with the options of a `SelectiveTrainer`.

    As the Trainer's first callback, it saves the state of selection in each checkpoint, and
    corrects the Trainer's epoch count before other callbacks read it.
    """

    def __init__(
        self,
        trainer: Any,
        strategy: sb.Strategy,
        losses: model_losses.RowLosses | None,
        pad: Mapping[str, float] | None,
        nonfinite: sb.NonFinite | str,
    ) -> None:
        self._trainer, self._strategy = trainer, strategy
        self._given, self._pad, self._nonfinite = losses, pad, nonfinite
        self._updates: Updates | None = None
        # The losses that are trained on, and those that selection reads: ModelLosses or OwnLosses.
        self._losses: Any = None
        self._read: Any = None
        self._per_epoch: int | None = None
        self._parameters = model_losses.model_parameters(trainer.model)
        self._current: tuple[sb.Selection, dict[str, Any]] | None = None  # in this training step
        self._weighed = False  # whether a batch has been weighed
        self._resumes: StateFile | None = None
        self.by_steps = False
        self.complete = False  # whether the last epoch ran to its end
        terms, needs = strategy.selector.terms, strategy.needs
        self._smoothing: float = getattr(trainer.label_smoother, "epsilon", 0.0)
        self._reweights = terms.reweights
        self._records = needs is not None and needs.recordings

    @property
    def loader(self) -> sb.SelectiveLoader | None:
        return None if self._updates is None else self._updates.loader

    @contextmanager
    def training(self, checkpoint: str | bool | None) -> Generator[None]:
        """Set the Trainer's arguments as selection needs them while the `with` body trains.

        `checkpoint` is the folder to continue from; True for the last one; None or False for none.
        """
        args = self._trainer.args
        if isinstance(checkpoint, bool):
            checkpoint = get_last_checkpoint(args.output_dir) if checkpoint else None
        self._resumes = None if checkpoint is None else self._file(Path(checkpoint))
        if self._resumes is not None:
            self._resumes.load()  # refuse a bad checkpoint before anything else is loaded
        before = args.max_steps, args.ignore_data_skip
        self.by_steps, self.complete = args.max_steps > 0, False
        self._updates = None  # the first loader that is made from now on is the one trained with
        args.ignore_data_skip = True  # the loader finds its place by itself
        try:
            yield
        finally:
            args.max_steps, args.ignore_data_skip = before
            scheduler = self._trainer.lr_scheduler
            if isinstance(scheduler, sb.CandidateScheduler):
                self._trainer.lr_scheduler = scheduler.scheduler

    def wrap(self, prepared: DataLoader[Any]) -> Updates:
        """Return the batches to train on, selected from the Trainer's own loader."""
        trainer, strategy = self._trainer, self._strategy
        args, subset = trainer.args, strategy.subset
        plain = own_shard(trainer.accelerator, prepared)
        self._find_losses()
        keeps_everything = strategy.selector.terms.keeps_everything
        # If nothing is selected, the batches are the Trainer's own, bit for bit.
        selects = subset is not None or strategy.scorer is not None or not keeps_everything
        packing, pad = self._lay_out(plain, selects)
        losses = self._read
        if packing is not None:
            plain = packing.loader(plain)
            losses = None if losses is None else partial(packing.losses, losses)
        device = args.device if packing is None else torch.device("cpu")  # where rows are packed
        loader = sb.SelectiveLoader(
            plain,
            trainer.model,
            None,
            strategy,
            losses=losses,
            outputs=self._read.outputs if self._has_classes else None,
            epochs=None if self.by_steps else args.num_train_epochs,
            progress=self._done if self.by_steps else None,
            with_selection=selects,
            pad=pad,
            device=None if packing is None else device,
            nonfinite=self._nonfinite,
        )
        self._per_epoch = _updates.candidates_per_epoch(plain, subset)
        first = self._updates is None  # a callback may ask for a loader in the middle of training
        how: dict[str, Any] = {"is_over": self._is_over, "packing": packing, "selects": selects}
        how["ended"] = self._pass_over if first else lambda: None
        updates = Updates(loader, args.gradient_accumulation_steps, device, **how)
        if not first:
            return updates
        if trainer.is_in_train and not self.by_steps:
            args.max_steps = updates.count(args.num_train_epochs)
        if self._resumes is not None:
            updates.load_state_dict(self._resumes.load())
        self._updates = updates
        return updates

    def take(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return a batch without selection's keys, and note them for its training step."""
        batch, selection = take_keys(inputs)
        self._current = None if selection is None else (selection, batch)
        return inputs if selection is None else model_losses.model_inputs(batch)

    def weigh(self, model: Any, items: Any) -> tuple[Tensor, Any] | None:
        """Return the batch's weighted loss, scaled as the Trainer expects it, and the outputs.

        Returns None if the strategy does not reweight, or in evaluation.
        """
        losses, trainer = self._losses, self._trainer
        if losses is None or self._current is None or not self._reweights:
            return None
        selection, batch = self._current
        # With labels, Liger's kernels return no logits.
        compare = not (self._weighed or getattr(trainer.args, "use_liger_kernel", False))
        outputs = losses.forward(model, batch, compare=compare)
        self._weighed = True
        self._record(outputs)  # unless `listening` has
        loss = losses.weigh(outputs, batch, selection.weights, items)
        # Without `items`, the Trainer divides the loss by the number of batches in the update.
        if items is not None and isinstance(losses, OwnLosses):
            loss = loss / trainer.current_gradient_accumulation_steps
        elif items is not None and trainer.args.average_tokens_across_devices:
            # `items` counts the elements of all processes, and gradients are averaged over them
            loss = loss * trainer.accelerator.num_processes
        return loss, outputs

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Refuse an update whose loss was computed without the rows' weights."""
        if self._reweights and not self._weighed:
            raise sb.ConfigurationError(
                f"{self._strategy.name} weighs the rows of a batch, but the first update was "
                "computed without the weights. If you override training_step, call "
                "super().training_step in it, or use a strategy without weights."
            )

    @contextmanager
    def listening(self, model: Any) -> Generator[None]:
        """Record the losses of the first outputs that the model returns in the `with` body.

        `compute_loss` could return the outputs too, but TRL's `compute_loss` computes them twice.
        """
        if not self._records:
            yield
            return
        hook = model.register_forward_hook(lambda *of: self._record(of[-1]))
        try:
            yield
        finally:
            hook.remove()

    def _record(self, outputs: Any) -> None:
        current, self._current, needs = self._current, None, self._strategy.needs
        if current is None or self._updates is None or needs is None or not needs.recordings:
            return
        selection, batch = current
        with torch.no_grad():
            rows = self._read.rows(outputs, batch)
        # `auto` estimates from predictions how many labels are wrong.
        shown = needs.classes and self._has_classes
        seen = self._read.predictions(outputs, batch) if shown else None
        more = {"targets": batch.get("labels", ()), "smoothing": self._smoothing}
        self._updates.loader.record(selection, rows, seen, **more)

    def counts(self) -> dict[str, float]:
        if self._updates is None:
            return {}
        stats = self._updates.loader.stats
        counts: dict[str, float] = {"candidates": stats.candidates, "scored": stats.scored}
        counts["kept"] = stats.kept
        if stats.candidates:
            counts |= {"rate": stats.rate, "cost": stats.cost / stats.plain_cost}
        return {f"selection_{name}": count for name, count in counts.items()}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set the number of epochs, which the Trainer cannot compute without a loader's length."""
        updates, trainer = self._updates, self._trainer
        # When the loader was built, the model was not sharded yet.
        skips = sb.NonFinite(self._nonfinite) is sb.NonFinite.SKIP
        kit.has_collective_forward(self._strategy, trainer.model, skips, kit.find_ranks())
        if not self.by_steps:
            state.num_train_epochs = math.ceil(args.num_train_epochs)
        # If the number of steps is unknown, the schedule steps as often as without selection.
        counts = updates is not None and updates.counts_candidates
        if counts and not isinstance(trainer.lr_scheduler, BY_METRIC):
            trainer.lr_scheduler = sb.CandidateScheduler(
                trainer.lr_scheduler, updates.loader, accumulation=updates.batches
            )
        self._extend(state)  # a checkpoint may lie beyond the planned steps

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell the Trainer how many passes over the data set are done."""
        self._extend(state)
        if self._updates is None:
            return
        stats = self._updates.loader.stats
        seen = stats.epoch if self._per_epoch is None else stats.candidates / self._per_epoch
        state.epoch = float(min(seen, stats.epoch + 1))
        if state.global_step >= state.max_steps and not self.by_steps:
            state.epoch = float(args.num_train_epochs)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End training after its last epoch, if the number of steps was unknown at first."""
        if not self.passed:
            return
        state.epoch = float(args.num_train_epochs)
        control.should_training_stop = True
        if self.complete:  # only now is it known which step was the last
            step = state.global_step
            control.should_save |= args.save_strategy == "steps" and (
                state.save_steps <= 0 or step % state.save_steps != 0
            )
            control.should_evaluate |= (
                args.eval_strategy == "steps"
                and step % state.eval_steps != 0
                and step >= args.eval_delay
            )

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save the state of selection in a checkpoint that training can continue from."""
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        # A hyperparameter search saves elsewhere, and never continues from its checkpoints.
        if self._updates is not None and not args.save_only_model and checkpoint.is_dir():
            self._file(checkpoint).save(self._updates.state_dict())

    def _extend(self, state: Any) -> None:
        """Let training go on until its epochs are over, however many steps packed rows make."""
        updates = self._updates
        if updates is not None and updates.counts_candidates and updates.repacks:
            state.max_steps = max(state.max_steps, state.global_step + 1)

    @property
    def passed(self) -> bool:
        """Whether all epochs are over, in a training whose number of steps was unknown at first."""
        updates = self._updates
        if updates is None or not updates.counts_candidates or updates.rest is not None:
            return False
        return updates.loader.next_epoch >= self._trainer.args.num_train_epochs

    def _is_over(self) -> bool:
        state = self._trainer.state
        ended = self.passed or state.global_step >= state.max_steps
        return self._trainer.is_in_train and ended

    def _pass_over(self) -> None:
        assert self._updates is not None  # it calls this method
        self._trainer.state.epoch = float(self._updates.loader.next_epoch)
        self.complete = self.passed

    def _done(self) -> float:
        return min(1.0, self._trainer.state.global_step / self._trainer.args.max_steps)

    def _file(self, checkpoint: Path) -> StateFile:
        args = self._trainer.args
        return StateFile.of_rank(checkpoint, "selection", args.process_index, args.world_size)

    def _find_losses(self) -> None:
        strategy, model = self._strategy, self._trainer.model
        needs = strategy.needs
        if needs is None and not self._reweights:
            return
        if self._given is not None:
            self._losses = self._read = OwnLosses(self._given, self._parameters)
        else:
            fused = model_losses.FUSED in self._parameters
            losses = ModelLosses.of_model(model, smoothing=self._smoothing, fused=fused)
            self._losses = self._read = losses
            if strategy.selector.terms.confidence:
                self._read = replace(losses, smoothing=0.0, confidence=True)
        if needs is not None and needs.outputs and not self._has_classes:
            raise sb.ConfigurationError(
                f"{strategy.name} scores by one prediction for each example, but "
                f"{'losses=' if self._given else type(model).__name__} gives none. Score "
                "by losses, with measure='loss'."
            )

    @property
    def _has_classes(self) -> bool:
        """Whether each example has one prediction: of classes, or of numbers in a regression."""
        target = getattr(self._read, "target", None)
        return target is model_losses.Target.CLASSES

    def _lay_out(
        self, loader: DataLoader[Any], selects: bool
    ) -> tuple[Packing | None, Mapping[str, float]]:
        """Return how several documents lie in a row, if they do, and what to pad rows with."""
        trainer, collator = self._trainer, self._trainer.data_collator
        packing = find_packing(loader, collator, trainer.accelerator) if selects else None
        if packing is None:
            tokenizer = trainer.processing_class or getattr(collator, "tokenizer", None)
            return None, find_padding(tokenizer, getattr(trainer.model, "config", None), self._pad)
        if self._has_classes:
            raise sb.ConfigurationError(
                f"{type(trainer.model).__name__} takes one label for each row, but the collator "
                "joins examples into one row. Use a collator that pads them."
            )
        return packing, PADDING


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
