"""The one-line summary that is printed at a training's first batch."""

from collections.abc import Iterator

from torch import Tensor, nn

from selective_backprop._batches.structure import list_leaves
from selective_backprop._core.isolation import LARGEST_SAVED, large_buffers
from selective_backprop._core.stats import TRAINED, Stats
from selective_backprop._loader.assembly import LoaderParts
from selective_backprop._memory.ledger import example_bytes
from selective_backprop._pipeline.resume_point import EpochStart
from selective_backprop._pipeline.rows import Rows
from selective_backprop.scorers import Measure
from selective_backprop.strategies import Strategy


def count_cost(strategy: Strategy, rate: float | None = None) -> tuple[float, float]:
    """Return the cost of scoring and the cost of everything, in forward passes per candidate.

    Both are counted, not measured, for the epochs in which the strategy selects. A cheap scorer's
    pass counts as a whole one. `rate` is the share that is trained on, by default the selector's.
    """
    needs = strategy.needs
    rate = strategy.selector.terms.rate if rate is None else rate
    scoring = 0.0
    if needs is not None and needs.model:
        scoring = needs.fresh if needs.passes else (1.0 - rate) * needs.rescores
    return scoring, scoring + TRAINED * rate


def summarise(
    strategy: Strategy, parts: LoaderParts, stats: Stats, start: EpochStart, first: Rows
) -> str:
    """Return in one line what was checked, what waits and what selection will save.

    `stats` are the counts until the first batch was handed out, in the epoch of that `start`.
    """
    found = [
        _selection(strategy, parts),
        *_steps(strategy, parts, start),
        *_checks(strategy, parts, stats),
        *_costs(strategy, parts, first),
    ]
    return f"selective-backprop: {' · '.join(found)}"


def _selection(strategy: Strategy, parts: LoaderParts) -> str:
    terms, shape, schedule = strategy.selector.terms, parts.shape, strategy.schedule
    name = "" if strategy.name == "selective-backprop" else f"{strategy.name}, "
    if terms.keeps_everything:
        return f"{name}all candidates are trained on"
    if shape.window is not None:
        size = shape.batch_size or 1
        text = f"{size} of {shape.window} candidates per step (rate {size / shape.window:.2f})"
    elif terms.promises:
        text = f"about {terms.rate:.2f} of the candidates, {shape.batch_size} per step,"
    else:
        text = f"some of the candidates, {shape.batch_size} per step,"
    if schedule.gate is not None:
        text += f" once its gate opens, which judges by {_watched(parts)}"
    elif schedule.warmup_epochs:
        text += f" from epoch {schedule.warmup_epochs + 1} on"
    return name + text.rstrip(",")


def _steps(strategy: Strategy, parts: LoaderParts, start: EpochStart) -> Iterator[str]:
    """Yield how many steps epochs have, beside those without selection."""
    batches = parts.length_planner.source.batches
    if batches is None or strategy.selector.terms.keeps_everything:
        return
    later = strategy.schedule.warmup_epochs
    try:
        lengths = parts.length_planner.lengths(start, later + 1)
        steps = f"{lengths[-1]} steps in epoch {start.epoch + later + 1}"
    except TypeError:
        terms = strategy.selector.terms
        steps = "as many steps an epoch as the losses leave"
        if terms.promises:
            steps = f"about {terms.rate * batches:.0f} steps an epoch"
    yield f"{steps}, {batches} without selection"


def _watched(parts: LoaderParts) -> str:
    """Return what a gate judges by while it is shut."""
    feed, paid = parts.pipeline.feed, "batches that are scored for it"
    if feed is None or not feed.expected:
        return paid
    given = "losses" if feed.measure is Measure.LOSS else "outputs"
    if feed.taken:
        return f"the {given} of your loop"
    return f"the {given} that you record, or else by {paid}"


def _checks(strategy: Strategy, parts: LoaderParts, stats: Stats) -> Iterator[str]:
    pipeline, needs = parts.pipeline, strategy.needs
    if stats.scored:
        yield "loss per example ok"
    elif needs is not None and needs.recordings:
        yield "losses are those you record"
    if not parts.length_planner.source.indexed:
        yield "no indices (a stream)"
    elif pipeline.candidate_loader.counts:
        yield "indices ok"
    found = None if pipeline.scorer is None else pipeline.scorer.so_far
    if found is not None:
        yield f"cheap scores find {found.overlap:.0%} of the highest"
    model = pipeline.options.model
    scores = strategy.scores and needs is not None and needs.model
    names = large_buffers(model) if scores and isinstance(model, nn.Module) else []
    if names:
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        which = ", ".join(names[:2]) + more
        limit = _size(LARGEST_SAVED)
        yield f"buffers over {limit} ({which}) are put back only if scoring moves them at once"


def _costs(strategy: Strategy, parts: LoaderParts, first: Rows) -> Iterator[str]:
    terms, needs, shape = strategy.selector.terms, strategy.needs, parts.shape
    if not terms.keeps_everything and needs is not None and needs.passes:
        size = shape.batch_size or first.count
        rows = shape.window or size + (parts.length_planner.source.batch_size or size)
        tensors = [leaf for leaf in list_leaves(first.batch) if isinstance(leaf, Tensor)]
        held = sum(tensor.element_size() * tensor.numel() for tensor in tensors)
        yield f"rows waiting ≤ {_size(rows * held / max(1, first.count))}"
    if parts.ledger is not None and needs is not None:
        each = example_bytes(needs.depth, first=needs.first)
        yield f"ledger {_size(parts.ledger.examples * each)}"
    if not terms.promises:
        return
    rate = terms.rate
    if shape.window is not None and shape.batch_size is not None and not terms.keeps_everything:
        rate = shape.batch_size / shape.window
    scoring, total = count_cost(strategy, rate)
    scorer = parts.pipeline.scorer
    about = "≤" if scorer is not None and scorer.checked > 0 else "≈"
    if scoring:
        yield f"scoring {about} {scoring / total:.0%} of the computing"
    beside = ", its own model's passes not" if needs is not None and not needs.model else ""
    if not terms.keeps_everything:
        yield f"epoch {about} {total / TRAINED:.2f} of plain (counted in forwards{beside})"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
