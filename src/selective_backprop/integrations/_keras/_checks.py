"""Checks of model, strategy and data before `fit` begins."""

from typing import Any

import torch
from torch.utils.data import DataLoader

from selective_backprop._batches.losses import check_losses
from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.isolation import eval_mode, kept_random_streams
from selective_backprop._core.types import LossesOf
from selective_backprop._pipeline.resume_point import kept_streams
from selective_backprop._pipeline.source import open_source, unstarted
from selective_backprop.integrations._keras._backend import keras
from selective_backprop.integrations._keras._feed import Recording
from selective_backprop.integrations._keras._losses import CompiledLoss, apply
from selective_backprop.integrations._keras._untouched import all_modules
from selective_backprop.strategies import Strategy


def check_scorer(strategy: Strategy) -> None:
    """Refuse scorers that copy a model or use parts of it: this fails for Keras models."""
    needs = strategy.needs
    if strategy.scores and needs is not None and needs.model and not needs.plain_forward:
        raise ConfigurationError(
            f"{strategy.scorer!r} does not score by one whole forward pass of the model "
            "(Needs(plain_forward=True)). It uses copies or parts of the model, which lack what "
            "Keras keeps in its own variables. Use Forward()"
        )


def check_model(model: Any, callbacks: Any) -> None:
    """Refuse models that cannot be trained on selected rows, and refuse a `CallbackList`."""
    if not model.compiled:
        raise ConfigurationError("the model is not compiled; call model.compile(...) first")
    for layer in all_modules(model):
        if isinstance(layer, keras.layers.RNN) and layer.stateful:
            raise ConfigurationError(
                f"{layer.name} is stateful: it expects each row to continue in the next batch, but "
                "selection puts other rows there. Use stateful=False"
            )
    if isinstance(callbacks, keras.callbacks.CallbackList):
        raise ConfigurationError("callbacks= is a CallbackList; pass a list of callbacks")


def check_weights(model: Any, strategy: Strategy) -> None:
    """Refuse row weights if `fit` would not train on the mean of the weighted losses."""
    for name in ("compute_loss", "train_step"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise ConfigurationError(
                f"{strategy.name} reweights examples, but {type(model).__name__}.{name} may use "
                "sample weights in any way. Use a strategy without weights"
            )
    for loss in keras.tree.flatten(model.loss):
        if getattr(keras.losses.get(loss), "reduction", None) == "mean_with_sample_weight":
            raise ConfigurationError(
                f"{strategy.name} reweights examples, but reduction='mean_with_sample_weight' "
                "divides by the sum of the weights, which undoes their effect. Use "
                "'sum_over_batch_size'"
            )


def find_recording(
    model: Any, compiled: CompiledLoss | None, strategy: Strategy
) -> Recording | None:
    """Return a `Recording` of training's losses; None if the strategy does not use them.

    Raises:
        ConfigurationError: if the strategy needs these losses and they cannot be recorded.
    """
    if strategy.needs is None or not strategy.needs.recordings:
        return None
    why = None
    if compiled is None:
        why = "losses= would need a second forward pass. Leave it out"
    elif model.jit_compile:
        why = "a compiled training step does not show them. Write compile(jit_compile=False)"
    if why is not None:
        raise ConfigurationError(
            f"{strategy.name} selects by training losses, which are computed from the outputs of "
            f"the training step, but {why}"
        )
    assert compiled is not None
    excess, classes = strategy.selector.terms.confidence, strategy.needs.classes
    return Recording(model, compiled, excess=excess, classes=classes)


def first_batch(source: DataLoader[Any]) -> Any:
    """Return a batch as the loader yields it; loader and random streams are unchanged."""
    apart = unstarted(source)
    with kept_streams(source, None):
        return next(iter(apart))


def choose_batch_size(source: DataLoader[Any], first: Any, strategy: Strategy) -> int | None:
    """Return the first batch's size if the loader has none but the strategy needs one."""
    fills = strategy.subset is not None or not strategy.selector.terms.keeps_everything
    if not fills or open_source(source).batch_size is not None:
        return None
    return len(keras.tree.flatten(first)[0])


def build(model: Any, batch: Any) -> None:
    """Build a model that is not built yet, by calling it on a batch."""
    if not model.built:
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        with torch.no_grad(), eval_mode(model):
            apply(model, inputs)


def try_losses(losses: LossesOf, model: Any, batch: Any) -> None:
    """Compute the losses of a batch once, to check that there is one for each example.

    Raises:
        ConfigurationError: if the model has several outputs.
        LossError: if there is not one loss per example.
    """
    rows = len(keras.tree.flatten(batch)[0])
    with torch.no_grad(), kept_random_streams(None), eval_mode(model):
        check_losses(losses(model, batch), rows)
