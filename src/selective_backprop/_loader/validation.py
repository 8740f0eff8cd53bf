"""Checks that `SelectiveLoader` makes before training starts."""

import math
from typing import Any

from selective_backprop._batches.losses import (
    class_weights,
    find_outputs,
    is_no_cross_entropy,
    label_smoothing,
)
from selective_backprop._core.errors import ConfigurationError, LoaderError, warn
from selective_backprop._core.options import check_number
from selective_backprop._loader.assembly import LoaderParts
from selective_backprop._pipeline.phases import Progress
from selective_backprop._pipeline.source import Source
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._strategy import check_loss


def check_fit(strategy: Strategy, source: Source, loss_fn: Any, losses: Any, outputs: Any) -> None:
    """Refuse a strategy that cannot work with this loader or this loss."""
    needs, draws_early = strategy.needs, _draws_early(strategy)
    by_index = needs is not None and (needs.indices or needs.remembers)
    if not source.indexed and (draws_early or by_index):
        why = "selects examples by index before they are loaded"
        raise LoaderError(
            f"{strategy.name} {why if draws_early else 'knows examples by index'}, but this loader "
            "yields examples as a stream, without indices (an iterable data set, batch_size=None "
            "or in_order=False). Use a strategy that scores examples as they come, such as "
            "sb.selective_backprop(rate=1/3), or give the loader a map-style data set."
        )
    if needs is not None and needs.outputs and find_outputs(losses, outputs) is None:
        raise ConfigurationError(
            f"{strategy.name} needs the model's outputs, but losses= gives only losses. Pass "
            "outputs=callable(model, batch) -> (outputs, targets)."
        )
    check_loss(strategy, is_no_cross_entropy(loss_fn))


def _draws_early(strategy: Strategy) -> bool:
    """Return whether a strategy selects examples without scoring them after they are loaded."""
    needs = strategy.needs
    return not strategy.selector.terms.keeps_everything and (needs is None or not needs.passes)


def warn_of_sampler(strategy: Strategy, source: Source, parts: LoaderParts) -> None:
    """Warn if batches join what the user's sampler keeps apart, or all ranks draw everything."""
    remembers, shape = strategy.needs is not None and strategy.needs.remembers, parts.shape
    if remembers and parts.ranks.size > 1 and parts.ranks.rank == 0 and source.draws_all:
        warn(
            f"each of the {parts.ranks.size} ranks draws all {source.examples:,} examples of its "
            "data set. To divide the data, pass DataLoader(data, sampler=DistributedSampler(data))."
            f" If each rank has other data, join them in one data set: {strategy.name} takes "
            "examples with the same index for the same example"
        )
    how, cure = "draws before loading and ", ""
    if not (_draws_early(strategy) or strategy.subset is not None or remembers):
        # Another sampler may yield single indices, of examples that are batches themselves.
        if source.attribute != "batch_sampler" or (shape.unchanged and shape.keeps_everything):
            return
        how = ""
        if shape.window is not None and shape.batch_size is not None:
            # Whole windows, and whole batches where everything is kept, never join two groups.
            whole = math.lcm(shape.window, shape.batch_size)
            if source.batch_size is not None and source.batch_size % whole == 0:
                return
            cure = (
                f". To keep groups apart, make them of {whole} examples, or of a multiple, and "
                "give the batch sampler this number as its batch_size"
            )
    if source.own_batches:
        warn(
            f"{strategy.name} {how}regroups the drawn examples into batches, which will mix the "
            f"groups that your batch sampler makes ({source.kind}){cure}"
        )


def warn_of_loss(
    strategy: Strategy,
    loss_fn: Any,
    do: str = "take the loss from the loader before the loop, loss_fn = loader.loss_fn",
) -> None:
    """Warn of a loss that a strategy misreads if it is recorded as it is; `do` something else."""
    why = {
        "smooths labels": label_smoothing(loss_fn),
        "weighs classes": loss_fn is not None and class_weights(loss_fn) is not None,
    }
    found = [reason for reason, given in why.items() if given]
    if strategy.selector.terms.confidence and found:
        warn(
            f"{strategy.name} takes exp(-loss) for the probability of the label, but the loss "
            f"{' and '.join(found)}, so learned examples may not look learned: {do}, or record "
            "plain cross-entropies"
        )


def check_use(strategy: Strategy) -> None:
    """Refuse a strategy whose weights would not be used, or for which no losses are recorded."""
    found = []
    if strategy.selector.terms.reweights:
        found.append(("reweights examples", "train on (selection.weights * losses).mean()"))
    if strategy.needs is not None and strategy.needs.recordings:
        by_hand = "call loader.record(selection, losses) for each batch"
        found.append(("selects by losses that training records", by_hand))
    if found:
        does, instead = map(" and ".join, zip(*found, strict=True))
        raise ConfigurationError(
            f"{strategy.name} {does}: take the loss from the loader before the loop, "
            f"loss_fn = loader.loss_fn. Or pass with_selection=True, {instead}"
        )


def check_length(strategy: Strategy, source: Source, epochs: Any, progress: Any) -> Progress:
    """Refuse a length of training that is impossible, or that is unknown and needed."""
    epochs = check_number("epochs", epochs, above=0, optional=True)
    if epochs is not None and progress is not None:
        raise ConfigurationError("epochs= and progress= were both given: pass only one of them")
    strategy.schedule.check_length(epochs, source.batches)
    fractions = strategy.schedule.uses_fractions or strategy.selector.terms.paced
    if fractions and progress is None and None in (epochs, source.batches):
        raise ConfigurationError(
            f"{strategy.name} depends on how far training is, which is not known: pass epochs= or, "
            "if the data loader has no length or something else ends training, pass "
            "progress=callable() -> fraction of training done"
        )
    return Progress(source, epochs, progress)
