"""Checks that `SelectiveLoader` makes before training starts."""

from typing import Any

from selective_backprop._batches.losses import find_outputs, no_plain_cross_entropy
from selective_backprop._core.errors import ConfigurationError, LoaderError, warn
from selective_backprop._core.options import check_whole
from selective_backprop._core.stats import Stats
from selective_backprop._pipeline.source import Source
from selective_backprop._sampling.draws import Draw
from selective_backprop.selectors import Terms
from selective_backprop.strategies import Strategy

MOST_CANDIDATES = 2**53  # of a window: beyond, a float no longer counts them one by one


def check_fit(strategy: Strategy, source: Source, losses: Any, outputs: Any) -> None:
    """Refuse a strategy that cannot work with this loader.

    Raises:
        LoaderError: if the strategy needs indices and the loader has none.
        ConfigurationError: if the strategy needs outputs and cannot get them.
    """
    needs, terms = strategy.needs, strategy.selector.terms
    draws_early = not terms.keeps_everything and (needs is None or not needs.passes)
    by_index = needs is not None and (needs.indices or needs.remembers)
    if not source.indexed and (draws_early or by_index):
        why = "selects examples by index before they are loaded"
        if not draws_early:
            why = "knows examples by index"
        raise LoaderError(
            f"{strategy.name} {why}, and this loader "
            "yields them as a stream (an iterable data set, batch_size=None or in_order=False). "
            "Give the strategy a scorer that needs no index, or the loader a map-style data set."
        )
    remembers = needs is not None and needs.remembers
    regroups = draws_early or strategy.subset is not None or remembers
    if regroups and source.own_batches:
        warn(
            f"{strategy.name} draws before loading and regroups what the batch sampler "
            f"({source.kind}) grouped; batches will mix its groups",
        )
    if needs is None:
        return
    if needs.outputs and find_outputs(losses, outputs) is None:
        raise ConfigurationError(
            f"{strategy.name} needs the model's outputs, and losses= gives losses alone. Pass "
            "outputs=callable(model, batch) -> (outputs, targets)."
        )


def warn_of_loss(strategy: Strategy, loss_fn: Any) -> None:
    """Warn of a loss that a strategy would misread."""
    why = no_plain_cross_entropy(loss_fn) if strategy.selector.terms.confidence else None
    if why is not None:
        warn(
            f"{strategy.name} takes exp(-loss) for the probability of the true class, and the loss "
            f"{why}: it is no plain cross-entropy, and what seems learned may not be. Train on "
            "it and record plain ones (with_selection=True, loader.record), or take another "
            "strategy, such as recorded_sb",
        )


def check_use(strategy: Strategy) -> None:
    """Refuse a strategy whose weights or recorded losses would be lost.

    Raises:
        ConfigurationError: if it has such; the message says what to write.
    """
    needs, reweights = strategy.needs, strategy.selector.terms.reweights
    records = needs is not None and needs.recordings
    if not reweights and not records:
        return
    does = [
        *(["reweights examples"] if reweights else []),
        *(["selects by losses that training records"] if records else []),
    ]
    by_hand = [
        *(["train on (selection.weights * losses).mean()"] if reweights else []),
        *(["call loader.record(selection, losses) for each batch"] if records else []),
    ]
    raise ConfigurationError(
        f"{strategy.name} {' and '.join(does)}: take the loss from the loader before the loop, "
        f"loss_fn = loader.loss_fn; or pass with_selection=True, {' and '.join(by_hand)}"
    )


def check_length(strategy: Strategy, source: Source, epochs: float | None, progress: Any) -> None:
    """Refuse a training whose length is impossible, or unknown although the strategy needs it.

    Raises:
        ConfigurationError: if the length is such.
    """
    if epochs is not None and progress is not None:
        raise ConfigurationError("give epochs= or progress=, not both: one is the other's rival")
    strategy.schedule.check_length(epochs, source.batches)
    fractions = strategy.schedule.uses_fractions or strategy.selector.terms.paced
    if fractions and progress is None:
        if epochs is None:
            raise ConfigurationError(
                f"{strategy.name} changes at fractions of training, and its length is not "
                "known: pass epochs= (or progress=, where something else ends training)"
            )
        if source.batches is None:
            raise ConfigurationError(
                f"{strategy.name} changes at fractions of training, and the loader does not "
                "know its length: pass progress=callable() -> fraction of training done"
            )


def full_batch(source: Source, batch_size: int | None, terms: Terms) -> int | None:
    """Return the rows of a full training batch; None if batches are passed on as they come.

    Raises:
        ConfigurationError: if the size is unknown and selection needs it.
    """
    if batch_size is not None:
        return int(check_whole("batch_size", batch_size))
    if source.batch_size is None and not terms.keeps_everything:
        raise ConfigurationError(
            "the loader does not say how many examples are in its batches; pass batch_size= for "
            "the training batches"
        )
    return source.batch_size


def full_window(batch: int, terms: Terms) -> int:
    """Return the candidates from which a full training batch is drawn.

    Warns where whole numbers cannot come within 1 % of the rate.

    Raises:
        ConfigurationError: if there are `MOST_CANDIDATES` or more.
    """
    if not batch / terms.rate < MOST_CANDIDATES:
        raise ConfigurationError(
            f"rate={terms.rate:g}: a batch of {batch} would be drawn from {batch / terms.rate:g} "
            "candidates; keep a larger share"
        )
    window = max(batch, round(batch / terms.rate))
    if terms.draw is Draw.EXACT and abs(batch / window / terms.rate - 1) > 0.01:
        warn(
            f"a batch of {batch} from a window of {window} candidates keeps "
            f"{batch / window:.4f} of them, not {terms.rate:.4f}",
        )
    return window


def warn_of_no_batch(stats: Stats, candidates_seen: int) -> None:
    """Warn of an epoch that yielded no training batch.

    Args:
        stats: the counts at its end.
        candidates_seen: how many candidates it had.
    """
    warn(
        f"epoch {stats.epoch} yielded no training batch: of {candidates_seen} candidates "
        f"{stats.waiting} wait for a full window or batch. {stats.ties:.0%} of the recent "
        "scores are ties, which are never above one another.",
    )
