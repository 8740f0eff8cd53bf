"""The one-line summary that is printed at a training's first batch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from selective_backprop._batches.structure import list_leaves
from selective_backprop._core.isolation import LARGEST_SAVED, large_buffers
from selective_backprop._core.stats import TRAINED, Stats
from selective_backprop._loader.assembly import LoaderParts
from selective_backprop._memory.ledger import example_bytes
from selective_backprop._pipeline.rows import Rows
from selective_backprop._pipeline.source import Source
from selective_backprop.scorers import Measure
from selective_backprop.strategies import Strategy


@dataclass(frozen=True)
class CountedCost:
    """The cost of a strategy while it selects, counted in forward passes and not measured.

    Attributes:
        scoring: forward passes per candidate spent on scores, averaged over epochs; a cheap
            scorer's pass counts as a whole one.
        rate: share of the candidates that is trained on; the usual share if it depends on the
            losses.
    """

    scoring: float
    rate: float

    @classmethod
    def of(cls, strategy: Strategy, rate: float | None = None) -> "CountedCost":
        """Count the cost of a strategy.

        Args:
            strategy: the strategy.
            rate: share that is trained on, if it is known more exactly than by the selector.
        """
        terms, needs = strategy.selector.terms, strategy.needs
        rate = terms.rate if rate is None else rate
        scoring = 0.0
        if needs is not None and needs.model:
            scoring = needs.fresh if needs.passes else (1.0 - rate) * needs.rescores
        return cls(scoring, rate)

    @property
    def share(self) -> float:
        """Scoring as a share of all that is computed, in [0, 1)."""
        return self.scoring / (self.scoring + TRAINED * self.rate)

    @property
    def epoch(self) -> float:
        """The cost of an epoch, in epochs of traditional training."""
        return self.scoring / TRAINED + self.rate


def summarise(
    source: Source,
    strategy: Strategy,
    parts: LoaderParts,
    stats: Stats,
    first: Rows,
    model: nn.Module | None,
) -> str:
    """Return in one line what was checked, what waits and what selection will save.

    Args:
        source: the wrapped loader.
        strategy: what is selected, and when.
        parts: the stages of the loader.
        stats: the counts until the first batch was handed out.
        first: that batch.
        model: the model in training.
    """
    found = [
        _selection(strategy, parts),
        *_checks(source, strategy, parts, stats),
        *_unsaved_buffers(strategy, model),
        *_waits(source, strategy, parts, first),
        *_saving(strategy, parts),
    ]
    return f"selective-backprop: {' · '.join(found)}"


def _selection(strategy: Strategy, parts: LoaderParts) -> str:
    terms, shape, schedule = strategy.selector.terms, parts.shape, strategy.schedule
    name = "" if strategy.name == "selective-backprop" else f"{strategy.name}, "
    if terms.keeps_everything:
        return f"{name}all candidates are trained on"
    if shape.window is not None:
        rate = shape.batch_size or 1, shape.window
        text = f"{rate[0]} of {rate[1]} candidates per step (rate {rate[0] / rate[1]:.2f})"
    elif terms.promises:
        text = f"about {terms.rate:.2f} of the candidates, {shape.batch_size} per step,"
    else:
        text = f"some of the candidates, {shape.batch_size} per step,"
    if schedule.gate is not None:
        text += f" once its gate opens, which judges by {_watched(parts)}"
    elif schedule.warmup_epochs:
        text += f" from epoch {schedule.warmup_epochs + 1} on"
    return name + text.rstrip(",")


def _watched(parts: LoaderParts) -> str:
    """Return what a gate judges by while it is shut."""
    feed, paid = parts.pipeline.feed, "batches that are scored for it"
    if feed is None or not feed.expected:
        return paid
    given = "losses" if feed.measure is Measure.LOSS else "outputs"
    if feed.taken:
        return f"the {given} of your loop"
    return f"the {given} that you record, or else by {paid}"


def _checks(source: Source, strategy: Strategy, parts: LoaderParts, stats: Stats) -> Iterator[str]:
    needs = strategy.needs
    if stats.scored:
        yield "loss per example ok"
    elif needs is not None and needs.recordings:
        yield "losses are those you record"
    if not source.indexed:
        yield "no indices (a stream)"
    elif parts.pipeline.candidate_loader.counts:
        yield "indices ok"
    scorer = parts.scorer
    found = None if scorer is None else scorer.so_far
    if found is not None:
        yield f"cheap scores find {found.overlap:.0%} of the highest"


def _unsaved_buffers(strategy: Strategy, model: nn.Module | None) -> Iterator[str]:
    needs = strategy.needs
    scores = strategy.scores and needs is not None and needs.model
    names = large_buffers(model) if scores and isinstance(model, nn.Module) else []
    if names:
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        which = ", ".join(names[:2]) + more
        limit = _size(LARGEST_SAVED)
        yield f"buffers over {limit} ({which}) are put back only if scoring moves them at once"


def _waits(source: Source, strategy: Strategy, parts: LoaderParts, first: Rows) -> Iterator[str]:
    terms, needs, shape = strategy.selector.terms, strategy.needs, parts.shape
    if not terms.keeps_everything and needs is not None and needs.passes:
        size = shape.batch_size or first.count
        rows = shape.window or size + (source.batch_size or size)
        yield f"rows waiting ≤ {_size(rows * _bytes(first.batch) / max(1, first.count))}"
    if parts.ledger is not None and needs is not None:
        held = parts.ledger.examples * example_bytes(needs.depth)
        yield f"ledger {_size(held)}"


def _saving(strategy: Strategy, parts: LoaderParts) -> Iterator[str]:
    terms, needs, shape = strategy.selector.terms, strategy.needs, parts.shape
    if not terms.promises:
        yield "what an epoch saves depends on the losses"
        return
    rate = terms.rate
    if shape.window is not None and shape.batch_size is not None and not terms.keeps_everything:
        rate = shape.batch_size / shape.window
    cost = CountedCost.of(strategy, rate)
    cheap = parts.scorer is not None and parts.scorer.checked > 0
    about = "≤" if cheap else "≈"
    if cost.scoring:
        yield f"scoring {about} {cost.share:.0%} of the computing"
    beside = ", its own model's passes not" if needs is not None and not needs.model else ""
    if not terms.keeps_everything:
        yield f"epoch {about} {cost.epoch:.2f} of plain (counted in forwards{beside})"


def _bytes(batch: Any) -> int:
    tensors = [leaf for leaf in list_leaves(batch) if isinstance(leaf, Tensor)]
    return sum(tensor.element_size() * tensor.numel() for tensor in tensors)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
