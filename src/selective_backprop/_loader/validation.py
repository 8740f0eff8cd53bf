"""Checks that `SelectiveLoader` makes before training starts."""

from typing import Any

from selective_backprop._batches.losses import (
    class_weights,
    find_outputs,
    label_smoothing,
)
from selective_backprop._core.errors import ConfigurationError, LoaderError, warn
from selective_backprop._pipeline.source import Source
from selective_backprop.strategies import Strategy


def check_fit(strategy: Strategy, source: Source, losses: Any, outputs: Any) -> None:
    """Refuse a strategy that cannot work with this loader."""
    needs, terms = strategy.needs, strategy.selector.terms
    draws_early = not terms.keeps_everything and (needs is None or not needs.passes)
    by_index = needs is not None and (needs.indices or needs.remembers)
    if not source.indexed and (draws_early or by_index):
        why = "selects examples by index before they are loaded"
        raise LoaderError(
            f"{strategy.name} {why if draws_early else 'knows examples by index'}, but this loader "
            "yields them as a stream (an iterable data set, batch_size=None or in_order=False). "
            "Take a strategy that scores examples as they come, such as "
            "sb.selective_backprop(rate=1/3), or give the loader a map-style data set."
        )
    remembers = needs is not None and needs.remembers
    regroups = draws_early or strategy.subset is not None or remembers
    if regroups and source.own_batches:
        warn(
            f"{strategy.name} draws before loading and regroups the examples, so batches will mix "
            f"the groups of the batch sampler ({source.kind})"
        )
    if needs is not None and needs.outputs and find_outputs(losses, outputs) is None:
        raise ConfigurationError(
            f"{strategy.name} needs the model's outputs, but losses= gives only losses. Pass "
            "outputs=callable(model, batch) -> (outputs, targets)."
        )


def warn_of_loss(
    strategy: Strategy,
    loss_fn: Any,
    do: str = "take the loss from the loader before the loop, loss_fn = loader.loss_fn",
) -> None:
    """Warn of a loss that is recorded as it is and that a strategy would misread.

    `do` is what to write instead.
    """
    why = {
        "smooths labels": label_smoothing(loss_fn),
        "weighs classes": loss_fn is not None and class_weights(loss_fn) is not None,
    }
    found = [reason for reason, given in why.items() if given]
    if strategy.selector.terms.confidence and found:
        warn(
            f"{strategy.name} takes exp(-loss) for the probability of the true class, but the loss "
            f"{' and '.join(found)}, so learned examples may not look learned: {do}, or record "
            "plain cross-entropies"
        )


def check_use(strategy: Strategy) -> None:
    """Refuse a strategy whose weights or recorded losses would be lost."""
    does, by_hand = [], []
    if strategy.selector.terms.reweights:
        does.append("reweights examples")
        by_hand.append("train on (selection.weights * losses).mean()")
    if strategy.needs is not None and strategy.needs.recordings:
        does.append("selects by losses that training records")
        by_hand.append("call loader.record(selection, losses) for each batch")
    if does:
        raise ConfigurationError(
            f"{strategy.name} {' and '.join(does)}: take the loss from the loader before the loop, "
            f"loss_fn = loader.loss_fn; or pass with_selection=True, {' and '.join(by_hand)}"
        )


def check_length(strategy: Strategy, source: Source, epochs: float | None, progress: Any) -> None:
    """Refuse a training whose length is impossible, or unknown although the strategy needs it."""
    if epochs is not None and progress is not None:
        raise ConfigurationError("give epochs= or progress=, not both")
    strategy.schedule.check_length(epochs, source.batches)
    fractions = strategy.schedule.uses_fractions or strategy.selector.terms.paced
    if fractions and progress is None:
        if epochs is None:
            raise ConfigurationError(
                f"{strategy.name} changes at fractions of training, but its length is not known: "
                "pass epochs= (or progress=, if something else ends training)"
            )
        if source.batches is None:
            raise ConfigurationError(
                f"{strategy.name} changes at fractions of training, but the loader does not "
                "know its length: pass progress=callable() -> fraction of training done"
            )
