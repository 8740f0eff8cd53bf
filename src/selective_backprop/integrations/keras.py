"""Selection in Keras 3 with its torch backend: `fit` trains on the selected examples."""

import warnings
from contextlib import ExitStack, nullcontext
from typing import Any

from torch.utils.data import DataLoader

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.stats import Stats
from selective_backprop._core.types import LossesOf
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop.integrations._keras._backend import keras
from selective_backprop.integrations._keras._checks import (
    build,
    check_model,
    check_scorer,
    check_weights,
    choose_batch_size,
    find_recording,
    first_batch,
    try_losses,
)
from selective_backprop.integrations._keras._data import (
    join_arrays,
    load_rows,
    refuse_beside_loader,
    refuse_others,
    split_off,
)
from selective_backprop.integrations._keras._feed import Feed, Recording
from selective_backprop.integrations._keras._losses import CompiledLoss
from selective_backprop.integrations._keras._state import FIELDS, find_backup
from selective_backprop.integrations._keras._untouched import Untouched
from selective_backprop.integrations._keras._watch import Watch, foresee
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._collective import check_loss, check_strategy

__all__ = ["SelectiveFit"]


class SelectiveFit:
    """Train a compiled Keras model with its own `fit`, on the examples that a strategy selects.

    The model, `compile` and callbacks stay as they are. Examples are scored by the compiled loss.
    If a strategy weights examples, `fit` gets its weights as sample weights. Each epoch's logs gain
    three numbers. `selection_rate` is the share of the examples that were trained on.
    `selection_score` is the mean of recent scores. `selection_cost` is the cost of scoring and
    training, as a share of the cost of training on everything.

    If `keras.callbacks.BackupAndRestore` is among the callbacks, the state of selection, the random
    streams and the layers' seeds are saved in its folder at each epoch's end. Interrupted training
    then continues as if it had not been interrupted.

    Args:
        model: a compiled `keras.Model`, with one output and one loss unless `losses` is given.
        strategy: what to select and when, such as `sb.selective_backprop(rate=1/3)`.
        losses: `callable(model, batch)` that returns one loss per example, in place of the compiled
            loss. Use it for a model with several outputs, or with its own `train_step`.
        nonfinite: as for `SelectiveLoader`.

    Raises:
        ConfigurationError: if the model is no `keras.Model`, or the strategy cannot work with it.
    """

    def __init__(
        self,
        model: Any,
        strategy: Strategy,
        *,
        losses: LossesOf | None = None,
        nonfinite: NonFinite | str = NonFinite.RAISE,
    ) -> None:
        if not isinstance(model, keras.Model):
            raise ConfigurationError(f"a keras.Model is needed, got {type(model).__name__}")
        self._model, self._strategy = model, check_strategy(strategy)
        check_scorer(strategy)
        self._losses, self._nonfinite = losses, nonfinite
        self._watch: Watch | None = None
        self._loaded: dict[str, Any] | None = None

    @property
    def loader(self) -> SelectiveLoader:
        """The loader of the last `fit`; ConfigurationError before the first `fit`."""
        return self._watched.feed.loader

    @property
    def stats(self) -> Stats:
        """Counts of the last `fit`; ConfigurationError before the first `fit`."""
        return self.loader.stats

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: Any = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
    ) -> Any:
        """Train as `keras.Model.fit` does, on the selected examples.

        An epoch is one pass over the data, with one step for each batch of selected examples. With
        `steps_per_epoch`, an epoch has that many steps, and may begin or end within a pass.

        Args:
            x: arrays, or a `torch.utils.data.DataLoader`, which keeps its workers and sampler.
            y: targets, if `x` is arrays.
            batch_size: number of rows of a batch, if `x` is arrays; 32 by default.
            epochs: as in Keras, the epoch to stop before: `epochs - initial_epoch` epochs run.
            verbose: as in Keras.
            callbacks: a list of callbacks.
            validation_split: share of the rows to validate on, in [0, 1); the last rows are taken.
            validation_data: as in Keras.
            shuffle: whether arrays are shuffled; a loader has its own order.
            class_weight: loss weights by class number, if `x` is arrays.
            sample_weight: one loss weight per example, if `x` is arrays.
            initial_epoch: number of the epoch to begin with. If it is above 0, selection continues
                from the state given to `load_state_dict`, or from the last `fit`.
            steps_per_epoch: number of steps of an epoch; None for one pass.
            validation_steps: as in Keras.
            validation_batch_size: as in Keras.
            validation_freq: as in Keras.

        Returns:
            Keras's `History`.

        Raises:
            ConfigurationError: if the model, an argument or their combination cannot work.
            LoaderError: if the strategy cannot select from `x`.
        """
        check_model(self._model, callbacks)
        source, split = _open(
            x,
            y,
            batch_size=batch_size,
            shuffle=shuffle,
            class_weight=class_weight,
            sample_weight=sample_weight,
            validation_split=0.0 if validation_data is not None else validation_split,
        )
        earlier = self._earlier(initial_epoch)
        feed, recording = self._prepare(source, epochs, steps_per_epoch)
        listed = keras.tree.flatten(callbacks) if callbacks else []
        self._watch = Watch(feed, find_backup(listed), earlier)
        with recording or nullcontext(), ExitStack() as ending, warnings.catch_warnings():
            ending.callback(feed.end_step)  # also if Ctrl-C or an error ends training
            # Keras mistakes the end of an epoch for the end of the data.
            warnings.filterwarnings("ignore", "Your input ran out of data", UserWarning)
            history = self._model.fit(
                feed.as_loader(),
                epochs=epochs,
                verbose=verbose,
                callbacks=self._watch.beside(self._model, listed, verbose, epochs, steps_per_epoch),
                validation_data=split if validation_data is None else validation_data,
                shuffle=False,
                initial_epoch=initial_epoch,
                steps_per_epoch=steps_per_epoch,
                validation_steps=validation_steps,
                validation_batch_size=validation_batch_size or batch_size,
                validation_freq=validation_freq,
            )
        return history

    def state_dict(self) -> dict[str, Any]:
        """Return the state of selection, with the random streams and the layers' seeds.

        Save model and optimiser with Keras. `torch.load(weights_only=True)` reads this state. After
        Ctrl-C or an error in `fit`, the state continues with the rest of the interrupted epoch.
        With `steps_per_epoch`, Keras counts the steps of that epoch anew.

        Raises:
            ConfigurationError: before the first `fit`.
        """
        return self._watched.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `fit` continue from `state`, if its `initial_epoch` is `state["epoch"]`.

        Raises:
            ConfigurationError: if a field is missing or unknown. `fit` checks the fields' contents.
        """
        Saved(state).fields(*FIELDS)
        self._loaded = state

    def _earlier(self, initial_epoch: int) -> dict[str, Any] | None:
        """Return the state to continue from if no backup holds one."""
        state, self._loaded = self._loaded, None
        if state is None and initial_epoch and self._watch is not None:
            state = self._watch.state()
        return state

    def _prepare(
        self, source: DataLoader[Any], epochs: int, steps: int | None
    ) -> tuple[Feed, Recording | None]:
        """Build the model; return its feed, and a `Recording` if the strategy needs losses."""
        model, strategy = self._model, self._strategy
        weighs = strategy.selector.terms.reweights
        if weighs:
            check_weights(model, strategy)
        compiled = None if self._losses is not None else CompiledLoss(model)
        if compiled is not None:
            check_loss(strategy, compiled.no_cross_entropy)
        recording = find_recording(model, compiled, strategy)
        first = first_batch(source)
        build(model, first)
        found = self._losses or compiled
        if compiled is not None and strategy.selector.terms.confidence:
            found = compiled.excess
        losses = Untouched(found)  # ty: ignore[invalid-argument-type]
        try_losses(losses, model, first)
        has_classes = compiled is not None and compiled.has_classes
        length: dict[str, Any] = {"progress": lambda: self._watched.progress(epochs, steps)}
        if steps is None and foresee(source) is not None:
            length = {"epochs": epochs}
        loader = SelectiveLoader(
            source,
            model,
            None,
            strategy,
            losses=losses,
            outputs=Untouched(compiled.classes) if has_classes else None,
            batch_size=choose_batch_size(source, first, strategy),
            with_selection=True,
            nonfinite=self._nonfinite,
            **length,
        )
        axes = 1 if compiled is None else compiled.axes
        feed = Feed(
            loader,
            first,
            weighs=axes if weighs else None,
            recording=recording,
            endless=steps is not None,
        )
        return feed, recording

    @property
    def _watched(self) -> Watch:
        if self._watch is None:
            raise ConfigurationError("there is nothing yet; call fit(...) first")
        return self._watch


def _open(
    x: Any,
    y: Any,
    *,
    batch_size: int | None,
    shuffle: Any,
    class_weight: Any,
    sample_weight: Any,
    validation_split: float,
) -> tuple[DataLoader[Any], Any]:
    """Return a loader of the data given to `fit`, and the validation split or None."""
    refuse_others(x)
    if isinstance(x, DataLoader):
        refuse_beside_loader(
            y=y,
            batch_size=batch_size,
            class_weight=class_weight,
            sample_weight=sample_weight,
            validation_split=validation_split or None,
        )
        return x, None
    parts, rest = join_arrays(x, y, sample_weight, class_weight), None
    if validation_split:
        parts, rest = split_off(parts, validation_split)
    return load_rows(parts, batch_size, shuffle), rest
