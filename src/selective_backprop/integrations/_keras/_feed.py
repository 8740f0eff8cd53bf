"""What `fit` pulls and calls: batches of selected examples, and the callback between them."""

import math
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

import selective_backprop as sb
from selective_backprop.integrations import _kit as kit
from selective_backprop.integrations._keras import keras
from selective_backprop.integrations._keras._losses import CompiledLoss, apply, spread, the_only

KEPT = 2  # states; Keras may be interrupted before it writes its own backup of the same epoch


class Feed(keras.callbacks.Callback, IterableDataset):
    """The batches that `fit` trains on, and the callback that numbers epochs and keeps states.

    It must be the first callback, so that others find selection's numbers in the logs.
    """

    folder: Path | None = None  # of Keras's backup
    earlier: dict[str, Any] | None = None  # a state for the first epoch, if the backup has none

    def __init__(
        self,
        model: Any,
        source: DataLoader[Any],
        strategy: sb.Strategy,
        losses: Any,
        options: dict[str, Any],
        epochs: int,
        steps: int | None,  # in an epoch, if `fit` says so
    ) -> None:
        super().__init__()
        self._epochs, self._steps = epochs, steps
        self._terms, needs = strategy.selector.terms, strategy.needs
        self._epoch, self._begun = 0, None  # between two epochs, the next one; the first of `fit`
        self._given = 0  # batches that `fit` got to train on
        self._trained: tuple[Any, sb.Selection] | None = None  # the batch of the current step
        self._outputs: Any = None
        self.records = needs is not None and needs.recordings
        self._classes = needs is not None and needs.classes
        self._first = kit.first_batch(source)
        self._ones = torch.ones(rows := len(keras.tree.flatten(self._first)[0]))
        self._loss, options = None if losses else CompiledLoss(model), dict(options)
        if self._loss is not None:
            kit.check_loss(strategy, self._loss.no_cross_entropy)
            losses = partial(self._loss, excess=self._terms.confidence)
            options["outputs"] = self._loss.classes if self._loss.has_classes else None
        with torch.no_grad():
            if not model.built:
                apply(model, keras.utils.unpack_x_y_sample_weight(self._first)[0])
            with kit.kept_random_streams(None):  # `fit` sets the model's mode itself
                kit.check_losses(losses(model.eval(), self._first), rows)
        known = steps is None and kit.known_length(source) is not None
        options |= {"epochs": epochs} if known else {"progress": self._progress}
        fills = strategy.subset is not None or not self._terms.keeps_everything
        if fills and getattr(source.batch_sampler, "batch_size", None) is None:
            options["batch_size"] = rows
        self.loader = sb.SelectiveLoader(
            source, model, None, strategy, losses=losses, with_selection=True, **options
        )

    def _progress(self) -> float:
        if self._steps is None:
            return self._epoch / self._epochs
        return ((self._begun or 0) * self._steps + self._given) / (self._epochs * self._steps)

    def __len__(self) -> int:
        return sys.maxsize  # never reached: each epoch ends with its own last batch

    def as_loader(self) -> DataLoader[Any]:
        """Return a torch data loader for `fit`, which draws from no global random stream."""
        return DataLoader(self, None, collate_fn=lambda each: each, generator=torch.Generator())

    def __iter__(self) -> Iterator[Any]:
        if self._begun is None:  # `fit` builds the model from a batch before it trains
            yield self._weighed(self._first, self._ones)
            if self._begun is None:  # old versions of Keras go on to train with this iterator
                return
        loader, idle = self.loader, 0
        while idle < 2:  # a resumed epoch may have no batch left, but not two epochs in a row
            before = self._given, loader.stats.waiting
            loader.set_epoch(loader.next_epoch)  # samplers shuffle by this number
            for batch, selection in loader:
                assert self._trained is None, "Keras took a batch before it trained on the last"
                self._trained = (batch, selection) if self.records else None
                self._given += 1
                yield self._weighed(batch, selection.weights)
            if self._steps is None:
                return
            idle = idle + 1 if before == (self._given, loader.stats.waiting) else 0
        raise sb.LoaderError("an epoch yielded no training batch, and none would ever come")

    def _weighed(self, batch: Any, weights: Tensor) -> Any:
        if not self._terms.reweights:
            return batch
        inputs, targets, given = keras.utils.unpack_x_y_sample_weight(batch)
        axes = 1 if self._loss is None else self._loss.axes
        weights = spread(weights, axes)
        positions = the_only(targets, "target").shape[:axes] if axes > 1 else ()
        if len(positions) == axes:  # Keras multiplies them in place with position masks
            weights = weights.expand(positions).clone()
        if given is not None:
            weights = weights * spread(given, axes).to(weights.device)
        return inputs, targets, weights

    def hear(self, model: Any, args: Any, outputs: Any) -> None:
        """Keep the outputs of a training step; it is a forward hook of the model."""
        # Selection passes and validation run without gradients.
        if self._trained is not None and self._outputs is None and torch.is_grad_enabled():
            self._outputs = outputs

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        loss = self._loss
        if self._trained is None or loss is None:
            return
        (rows, selection), outputs = self._trained, self._outputs
        self._trained = self._outputs = None
        _, targets, weights = keras.utils.unpack_x_y_sample_weight(rows)
        with torch.no_grad():
            losses = loss.of(outputs, targets, weights, excess=self._terms.confidence)
            seen = loss.predictions(outputs, targets) if self._classes else None
        labels = loss.labels(targets)
        self.loader.record(selection, losses, seen, targets=labels, smoothing=loss.smoothing)

    def list_callbacks(self, model: Any, others: list[Any], verbose: Any) -> Any:
        """Return all callbacks of a `fit`: this one, the user's, and the ones that Keras adds."""
        options = {"verbose": verbose, "epochs": self._epochs, "steps": self._steps}
        options |= {"add_history": True, "add_progbar": verbose != 0}
        self._all = keras.callbacks.CallbackList([self, *others], model=model, **options)
        return self._all

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Number the epoch. In the first epoch, continue from a saved state if there is one."""
        self._epoch = epoch
        if self._begun is None:
            self._begun = epoch
            self._go_on(epoch)
        if self._steps is None:
            self.loader.set_epoch(epoch)
            steps, options = kit.known_length(self.loader), self.params or {}
            self._all.set_params({**options, "steps": steps})  # for the progress bar
        self._before: sb.Stats = self.loader.stats

    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        """Write the epoch's rate, mean score and cost into its logs, and save the state."""
        self._epoch = epoch + 1
        scores, counts = self.loader.scores, self.loader.stats.since(self._before)
        logs["selection_rate"] = counts.rate
        logs["selection_score"] = math.nan if scores is None else scores.mean
        logs["selection_cost"] = counts.cost / (counts.plain_cost or math.nan)
        if self.folder is not None:
            self._file(self._epoch).save(self.state())
            for old in sorted(self.folder.glob("selection-*.pt"))[:-KEPT]:
                old.unlink()

    def state(self) -> dict[str, Any]:
        """Return the state of selection, with the seeds of layers, which Keras does not save."""
        return {
            "epoch": self._epoch,
            "loader": self.loader.state_dict(),
            "seeds": {name: one.value.detach().clone() for name, one in self._seeds.items()},
            "streams": kit.save_streams(),
        }

    @property
    def _seeds(self) -> dict[str, Any]:
        weights = {id(variable) for variable in self.model.weights}
        others = [variable for variable in self.model.variables if id(variable) not in weights]
        return {str(number): variable for number, variable in enumerate(others)}

    def _file(self, epoch: int) -> kit.StateFile:
        return kit.StateFile((self.folder or Path()) / f"selection-{epoch:06d}.pt")

    def _go_on(self, epoch: int) -> None:
        """Continue from the epoch's state; if it is damaged, or of another model, do nothing."""
        state = self.earlier
        if self.folder is not None and self._file(epoch).path.exists():
            state = self._file(epoch).load()
        if state is None or state["epoch"] != epoch:
            if epoch:
                kit.warn(
                    f"training continues with epoch {epoch}, but selection starts again, without a "
                    "state. Add BackupAndRestore to the callbacks, or call load_state_dict()."
                )
            return
        _, own, layers, streams = kit.Saved(state).fields("epoch", "loader", "seeds", "streams")
        seeds = layers.tensors({name: one.value for name, one in self._seeds.items()})
        put_back = kit.read_streams(streams)
        with own.inside():
            self.loader.load_state_dict(own.value)
        for name, variable in self._seeds.items():
            variable.assign(seeds[name])
        put_back()
