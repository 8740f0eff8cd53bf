"""The batches that `fit` pulls, and the work between two of them."""

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from selective_backprop._core.errors import LoaderError
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop._sampling.draws import Selection
from selective_backprop.integrations._keras._backend import keras
from selective_backprop.integrations._keras._data import as_it_is
from selective_backprop.integrations._keras._losses import CompiledLoss, spread, the_only


class Feed:
    """Hand a loader's batches to `fit`, with weights if the strategy weights rows.

    Args:
        loader: yields batches with their selection.
        first: a batch as the user's loader yields it, from which `fit` builds the model.
        weighs: number of axes of the losses; None if no row weights multiply the losses.
        recording: records the losses of training; None if the strategy does not use them.
        endless: whether to yield epoch after epoch of the loader, because `fit` counts steps.
    """

    def __init__(
        self,
        loader: SelectiveLoader,
        first: Any,
        *,
        weighs: int | None,
        recording: "Recording | None",
        endless: bool,
    ) -> None:
        self.loader, self.endless = loader, endless
        self.steps = 0
        self._started = self._pending = False
        self._first, self._weighs = first, weighs
        self._recording = recording

    def start(self) -> None:
        """Note that from now on `fit` pulls batches to train on, not to inspect."""
        self._started = True

    def as_loader(self) -> DataLoader[Any]:
        """Return a torch data loader for `fit`, without workers.

        It has its own generator, so iterating it does not advance the global random streams.
        """
        return DataLoader(
            _Stream(self), batch_size=None, collate_fn=as_it_is, generator=torch.Generator()
        )

    def batches(self) -> Iterator[Any]:
        """Yield the batches of one epoch, or of all if `endless`; before training, only `first`."""
        if not self._started:
            ones = torch.ones(len(keras.tree.flatten(self._first)[0]))
            yield self._weighed(self._first, ones)
            if not self._started:  # old versions of Keras go on to train with this iterator
                return
        while True:
            waiting = self.loader.stats.waiting
            continues = self.loader._state.runs is not None  # its batches may all be handed out
            self.loader.set_epoch(self.loader.next_epoch)  # samplers shuffle by this number
            before = self.steps
            for batch, selection in self.loader:
                if self._recording is not None:
                    self._recording.expect(batch, selection)
                self.steps, self._pending = self.steps + 1, True
                yield self._weighed(batch, selection.weights)
                self.end_step()
            if not self.endless:
                return
            if (self.steps, self.loader.stats.waiting) == (before, waiting) and not continues:
                raise LoaderError("an epoch yielded no training batch, and none would ever come")

    def end_step(self) -> None:
        """Record the losses of the last training step, if not done yet."""
        if self._pending:
            self._pending = False
            if self._recording is not None:
                self._recording.record(self.loader)

    def _weighed(self, batch: Any, weights: Tensor) -> Any:
        if self._weighs is None:
            return batch
        inputs, targets, given = keras.utils.unpack_x_y_sample_weight(batch)
        weights = spread(weights, self._weighs)
        positions = the_only(targets, "target").shape[: self._weighs] if self._weighs > 1 else ()
        if len(positions) == self._weighs:  # Keras multiplies them in place with position masks
            weights = weights.expand(positions).clone()
        if given is not None:
            weights = weights * spread(given, self._weighs).to(weights.device)
        return inputs, targets, weights


class _Stream(IterableDataset[Any]):
    """Batches whose number differs from epoch to epoch.

    Without `len()`, `fit` would expect every epoch to have as many batches as the first. The huge
    number returned here is never reached, so each epoch ends with its last batch.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __iter__(self) -> Iterator[Any]:
        return self._feed.batches()

    def __len__(self) -> int:
        return sys.maxsize


class Recording:
    """Compute losses from the outputs of training steps, and record them in a loader.

    Inside its `with` block, a torch hook keeps the model's outputs of the current step. With
    `excess`, a loss is recorded as its excess over the lowest loss that its target allows. With
    `classes`, predicted and labelled classes are recorded too.
    """

    def __init__(self, model: Any, loss: CompiledLoss, *, excess: bool, classes: bool) -> None:
        self._model, self._loss, self._excess, self._classes = model, loss, excess, classes
        self._expected: tuple[Any, Selection] | None = None
        self._outputs: Any = None

    def __enter__(self) -> "Recording":
        self._handle = self._model.register_forward_hook(self._keep)
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()
        self._expected = self._outputs = None

    def expect(self, batch: Any, selection: Selection) -> None:
        """Note the batch of the next training step."""
        self._expected, self._outputs = (batch, selection), None

    def record(self, loader: SelectiveLoader) -> None:
        """Record the losses of the expected batch.

        Raises:
            LoaderError: if it was not trained on, since its losses may come later.
        """
        if self._expected is None:
            return
        if self._outputs is None:
            raise LoaderError(
                f"Keras {keras.__version__} took a batch before it had trained on the last one, so "
                "it is not known whose the next losses are. Use another version of Keras, or a "
                "strategy that uses no losses of training, such as selective_backprop"
            )
        (batch, selection), outputs = self._expected, self._outputs
        self._expected = self._outputs = None
        _, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
        with torch.no_grad():
            weights = None if self._excess else weights
            losses = self._loss.of(outputs, targets, weights, excess=self._excess)
            seen = self._loss.predictions(outputs, targets) if self._classes else None
            labels, smoothing = self._loss.labels(targets), self._loss.smoothing
            loader.record(selection, losses, seen, targets=labels, smoothing=smoothing)

    def _keep(self, model: Any, args: Any, outputs: Any) -> None:
        # Selection passes and validation run without gradients.
        if self._expected is not None and self._outputs is None and torch.is_grad_enabled():
            self._outputs = outputs
