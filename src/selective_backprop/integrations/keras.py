"""Selection in Keras 3 with its torch backend: `fit` trains on the selected examples."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from selective_backprop.integrations import _kit as kit
from selective_backprop.integrations._keras import keras
from selective_backprop.integrations._keras._feed import Feed
from selective_backprop.integrations._keras._losses import own_step

__all__ = ["SelectiveFit"]

MEAN = "mean_with_sample_weight"


class SelectiveFit:
    """Train a compiled Keras model with its own `fit`, on the examples that a strategy selects.

    The model, `compile` and callbacks stay as they are. Examples are scored by the compiled loss.
    If a strategy weights examples, `fit` gets its weights as sample weights. Each epoch's logs gain
    `selection_rate`, the share of the examples that were trained on; `selection_score`, the mean of
    recent scores; and `selection_cost`, the cost as a share of that of training on everything.

    If `keras.callbacks.BackupAndRestore` is among the callbacks, interrupted training continues as
    if it had not been interrupted: all that selection needs is saved in the callback's folder.

    Args:
        model: a compiled `keras.Model`, with one output and one loss unless `losses` is given.
        strategy: what to select and when, such as `sb.selective_backprop(rate=1/3)`.
        losses: `callable(model, batch)` that returns one loss per example, in place of the compiled
            loss. Use it for a model with several outputs, or with its own `train_step`.
        options: further options of `SelectiveLoader`, such as `nonfinite`.

    Raises:
        ConfigurationError: if the model is no `keras.Model`, or the strategy cannot work with it.
    """

    def __init__(
        self,
        model: Any,
        strategy: sb.Strategy,
        *,
        losses: Callable[[Any, Any], torch.Tensor] | None = None,
        **options: Any,
    ) -> None:
        needs = kit.check_strategy(strategy).needs
        scores = needs is not None and strategy.scores and needs.model
        trains = any(getattr(part, "training", False) for part in kit.scorer_parts(strategy.scorer))
        if not isinstance(model, keras.Model):
            raise sb.ConfigurationError(f"a keras.Model is needed, got {type(model).__name__}")
        if scores and (trains or not needs.plain_forward):
            raise sb.ConfigurationError(
                f"{strategy.scorer!r} does not score by one pass of the whole model in inference "
                "mode, but others would change Keras's own variables. Use Forward()"
            )
        self._model, self._strategy, self._losses, self._options = model, strategy, losses, options
        self._feed: Feed | None = None
        self._loaded: dict[str, Any] | None = None

    @property
    def loader(self) -> sb.SelectiveLoader:
        """The loader of the last `fit`; ConfigurationError before the first `fit`."""
        return self._last.loader

    @property
    def stats(self) -> sb.Stats:
        """Counts of the last `fit`; ConfigurationError before the first `fit`."""
        return self.loader.stats

    def fit(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch_size: int | None = None,
        shuffle: Any = True,
        epochs: int = 1,
        callbacks: Any = None,
        **options: Any,
    ) -> Any:
        """Train as `keras.Model.fit` does, on the selected examples, and return its `History`.

        An epoch is one pass over the data, with one step for each batch of selected examples. With
        `steps_per_epoch`, an epoch has that many steps, and may begin or end within a pass. With
        `initial_epoch` above 0, selection continues from the state given to `load_state_dict`, or
        from the last `fit`.

        Args:
            x: arrays, or a `torch.utils.data.DataLoader`, which keeps its workers and sampler.
            y: targets, if `x` is arrays.
            sample_weight: one loss weight per example, if `x` is arrays.
            batch_size: number of rows of a batch, if `x` is arrays; 32 by default.
            shuffle: whether arrays are shuffled; a loader has its own order.
            epochs: as in Keras, the epoch to stop before: `epochs - initial_epoch` epochs run.
            callbacks: a list of callbacks.
            options: other options of Keras's `fit`, such as `validation_data`.

        Raises:
            ConfigurationError: if the model, the data or an argument cannot work.
        """
        self._check(x, (y, sample_weight, batch_size), options)
        loads = isinstance(x, DataLoader)
        source = x if loads else _load_arrays(x, y, sample_weight, batch_size, shuffle)
        earlier, self._loaded = self._loaded, None
        if earlier is None and self._feed is not None and options.get("initial_epoch"):
            earlier = self._feed.state()
        given, steps = (self._losses, self._options), options.get("steps_per_epoch")
        feed = self._feed = Feed(self._model, source, self._strategy, *given, epochs, steps)
        listed, kind = keras.tree.flatten(callbacks or []), keras.callbacks.BackupAndRestore
        folders = [Path(one.backup_dir) for one in listed if isinstance(one, kind)]
        feed.folder, feed.earlier = next(iter(folders), None), earlier
        hook = self._model.register_forward_hook(feed.hear) if feed.records else nullcontext()
        with hook, warnings.catch_warnings():
            # Keras mistakes the end of an epoch for the end of the data.
            warnings.filterwarnings("ignore", "Your input ran out of data", UserWarning)
            options = {"verbose": "auto", "validation_batch_size": batch_size} | options
            every = feed.list_callbacks(self._model, listed, options["verbose"])
            options |= {"epochs": epochs, "callbacks": every, "shuffle": False}
            return self._model.fit(feed.as_loader(), **options)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of selection, with the random streams and the layers' seeds.

        Save model and optimiser with Keras. `torch.load(weights_only=True)` reads this state. After
        Ctrl-C or an error in `fit`, the state continues with the rest of the interrupted epoch.
        """
        return self._last.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `fit` continue from `state`, if its `initial_epoch` is `state["epoch"]`."""
        self._loaded = state

    @property
    def _last(self) -> Any:
        if self._feed is None:
            raise sb.ConfigurationError("there is nothing yet; call fit(...) first")
        return self._feed

    def _check(self, x: Any, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        model, needs, name = self._model, self._strategy.needs, self._strategy.name
        if not model.compiled:
            raise sb.ConfigurationError("the model is not compiled; call model.compile(...) first")
        records, own = needs is not None and needs.recordings, own_step(model)
        losses = keras.tree.flatten(model.loss)
        undoes = any(getattr(one, "reduction", None) == MEAN for one in losses)
        weighs = self._strategy.selector.terms.reweights
        leaves, loads, layers = keras.tree.flatten(x), isinstance(x, DataLoader), [*model.layers]
        for layer in layers:
            layers += getattr(layer, "layers", ())
        kit.refuse(
            {
                f"x is a {type(x).__name__}, but selection takes arrays or a torch DataLoader: if "
                "yours yields batches, pass DataLoader(iterable_data_set, batch_size=None)": (
                    not loads and not all(hasattr(leaf, "__array__") for leaf in leaves)
                ),
                "y=, sample_weight= and batch_size= are for arrays, but x is a DataLoader: let it "
                "yield batches of (x, y) or (x, y, sample_weight)": (
                    loads and any(each is not None for each in given)
                ),
                "class_weight= and validation_split= cannot be used with selection: give "
                "sample_weight= and validation_data=": (
                    options.keys() & {"class_weight", "validation_split"}
                ),
                "a recurrent layer has stateful=True: it expects each row to continue in the next "
                "batch, but selection puts other rows there. Use stateful=False": (
                    any(getattr(layer, "stateful", False) for layer in layers)
                ),
                f"{name} weighs examples, but {own or MEAN} may not train on the mean of the "
                "weighted losses. Use 'sum_over_batch_size' and Keras's own training step, or a "
                "strategy without weights": weighs and (own or undoes),
                f"{name} selects by training losses, which losses= and jit_compile=True do not "
                "show. Leave out losses=, and write compile(jit_compile=False)": (
                    records and (self._losses or model.jit_compile)
                ),
            }
        )


def _load_arrays(x: Any, y: Any, weights: Any, batch_size: Any, shuffle: Any) -> DataLoader[Any]:
    """Return a loader of arrays, or of structures of arrays, in batches like these."""
    kit.refuse({f"shuffle={shuffle!r}: write True or False": not isinstance(shuffle, bool)})
    given = tuple(part for part in (x, y, weights) if part is not None)
    parts = keras.tree.map_structure(_as_tensor, given)
    leaves = keras.tree.flatten(parts)
    if len(lengths := {len(leaf) for leaf in leaves}) > 1:
        raise sb.ConfigurationError(f"all arrays need the same length, got {sorted(lengths)} rows")
    size = kit.check_whole("batch_size", batch_size, optional=True) or 32  # as in Keras
    shuffled = DataLoader(TensorDataset(*leaves), batch_size=size, shuffle=shuffle)
    return sb.in_memory_loader(shuffled, partial(keras.tree.pack_sequence_as, parts))


def _as_tensor(array: Any) -> torch.Tensor:
    """Return an array as a tensor; floating-point numbers get Keras's precision."""
    if not isinstance(array, torch.Tensor):
        array = torch.from_numpy(np.ascontiguousarray(array))
    return array.to(getattr(torch, keras.config.floatx())) if array.is_floating_point() else array
