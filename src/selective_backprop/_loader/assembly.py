"""Put the stages between a data loader and a training loop together."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from selective_backprop._batches.losses import LossFunction, find_losses, find_outputs
from selective_backprop._batches.structure import Layout
from selective_backprop._core.stopwatch import Stopwatch
from selective_backprop._core.types import LossesOf, OutputsOf
from selective_backprop._distributed.group import Alone, Group, Ranks, find_ranks
from selective_backprop._distributed.messages import Exchange
from selective_backprop._loader.epoch_sync import Accord
from selective_backprop._loader.validation import full_batch, full_window
from selective_backprop._memory.history import History
from selective_backprop._memory.ledger import Ledger
from selective_backprop._memory.pending_updates import Journal, find_shard
from selective_backprop._memory.shared_history import SharedHistory
from selective_backprop._pipeline.candidate_loader import Arrivals
from selective_backprop._pipeline.epoch_length import Outlook, Progress
from selective_backprop._pipeline.gate_feed import LoopFeed, feed_of
from selective_backprop._pipeline.index_sampler import IndexDraw, PhaseClock
from selective_backprop._pipeline.lockstep import Turns
from selective_backprop._pipeline.nonfinite import FiniteGuard, NonFinite
from selective_backprop._pipeline.rows import Leftovers, Rows, Shape
from selective_backprop._pipeline.score_memory import Memory
from selective_backprop._pipeline.selection_buffer import Funnel
from selective_backprop._pipeline.source import Source
from selective_backprop._pipeline.stages import Pipeline
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Draw
from selective_backprop._sampling.gate import RunningGate
from selective_backprop._sampling.schedule import Interludes
from selective_backprop.scorers import Needs, RunningScorer
from selective_backprop.scorers._abstract import start_scorer
from selective_backprop.selectors import RunningSelector
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._collective import must_see_alike


@dataclass(frozen=True)
class Wishes:
    """What the user asked of a loader, checked and in the package's own types.

    Attributes are as the arguments of `SelectiveLoader`.
    """

    model: nn.Module | None
    loss_fn: LossFunction | None
    losses: LossesOf | None
    outputs: OutputsOf | None
    batch_size: int | None
    leftovers: Leftovers
    with_selection: bool
    layout: Layout
    device: torch.device | None
    seed: int
    nonfinite: NonFinite
    stopwatch: Stopwatch | None
    process_group: Any


@dataclass(frozen=True)
class Assembly:
    """The stages, and what looks at them.

    Attributes:
        shape: the sizes that the stages work with.
        clock: says which phase a batch falls into.
        selector: stage three.
        early: the funnel of what is drawn before loading.
        history: the recent scores, or None where none are ranked.
        pipeline: the stages themselves.
        outlook: what can be known ahead.
        ranks: who trains together.
        accord: opens epochs on all ranks together; None for one process alone.
    """

    shape: Shape
    clock: PhaseClock
    selector: RunningSelector
    early: Funnel
    history: History | None
    pipeline: Pipeline
    outlook: Outlook
    ranks: Ranks
    accord: Accord | None

    @property
    def scorer(self) -> RunningScorer | None:
        """Stage two, or None where nothing is scored."""
        return self.pipeline.scorer

    @property
    def held(self) -> Rows | None:
        """A batch that goes first, since another rank had none when it was full."""
        return None if self.accord is None else self.accord.turns.held

    @property
    def cut(self) -> bool:
        """Whether another rank ended the last epoch before this one was through."""
        return self.accord is not None and self.accord.turns.cut

    @property
    def journal(self) -> Journal | None:
        """What is noted of examples until the ranks merge it; None where nothing is."""
        return None if self.pipeline.memory is None else self.pipeline.memory.journal

    @property
    def gate(self) -> RunningGate | None:
        """What judges whether selection pays, or None where nothing does."""
        return self.pipeline.gate

    @property
    def feed(self) -> LoopFeed | None:
        """What shows the gate the loop's own outputs, or None where nothing does."""
        return self.pipeline.feed

    @property
    def ledger(self) -> Ledger | None:
        """What is remembered of each example, or None where nothing is."""
        return None if self.pipeline.memory is None else self.pipeline.memory.ledger


def assemble(source: Source, strategy: Strategy, progress: Progress, wishes: Wishes) -> Assembly:
    """Return the stages of a strategy over a source.

    Raises:
        ConfigurationError: if the sizes or the losses do not fit together.
    """
    terms, schedule = strategy.selector.terms, strategy.schedule
    needs = strategy.needs or Needs(passes=False)
    batch = full_batch(source, wishes.batch_size, terms)
    window = full_window(batch or 1, terms)
    shape = Shape(
        batch,
        window if terms.draw is Draw.EXACT else None,
        unchanged=batch is None or batch == source.batch_size,
        keeps_everything=terms.keeps_everything,
    )
    ranks = find_ranks(wishes.process_group, wishes.device)
    alike = must_see_alike(strategy, wishes.model, wishes.nonfinite is NonFinite.SKIP, ranks)
    context = Context(
        batch_size=batch or 1,
        window=shape.window,
        model=wishes.model,
        losses=find_losses(wishes.loss_fn, wishes.losses, wishes.outputs)
        if strategy.scores
        else None,
        outputs=find_outputs(wishes.losses, wishes.outputs),
        device=wishes.device,
        examples=source.examples,
        rate=terms.rate,
    )
    selector = strategy.selector.start(context)
    scorer = None if strategy.scorer is None else start_scorer(strategy.scorer, context)
    history = History(max(terms.history, window) * ranks.size) if terms.history else None
    turns, filing = None, None
    if isinstance(ranks, Group):
        ranked = history is not None and needs.passes
        filing = SharedHistory(history, window, wishes.device) if ranked else None
        turns = Turns(Exchange(ranks, window if ranked else 0), filing)
    interludes = Interludes(schedule.plain_every, batch_size=batch or 1, window=window)
    clock = PhaseClock(schedule, interludes, progress.at)
    seed = wishes.seed, ranks.rank
    early = Funnel(selector, shape, history=None, layout=Layout(), seed=(*seed, 0))
    late = Funnel(
        selector, shape, history=history, filing=filing, layout=wishes.layout, seed=(*seed, 1)
    )
    memory = None
    if scorer is not None and needs.remembers and source.examples is not None:
        memory = _remember(source.examples, scorer, needs, ranks)
    draw = None
    if source.indexed:
        first = early if scorer is None or memory is not None else None
        size = source.batch_size or batch or 1
        draw = IndexDraw(source.indices(), clock, first, wishes.leftovers, batch_size=size)
    tries = needs.passes
    counts = wishes.with_selection or scorer is not None
    arrivals = Arrivals(
        source.copy_with(draw),
        draw,
        clock,
        scorer if needs.defers else None,
        layout=wishes.layout,
        counts=counts or not (terms.keeps_everything and shape.unchanged),
        device=wishes.device,
        stopwatch=wishes.stopwatch,
    )
    gate = None if schedule.gate is None else schedule.gate.start(context)
    pipeline = Pipeline(
        arrivals=arrivals,
        clock=clock,
        selector=selector,
        scorer=scorer,
        gate=gate,
        feed=feed_of(gate, strategy.scorer),
        memory=memory,
        finite=FiniteGuard(wishes.nonfinite, wishes.layout),
        funnel=late,
        leftovers=wishes.leftovers,
        turns=turns,
        tries=tries,
        attributes=needs.indices or needs.remembers,
        learns=needs.learns,
        device=wishes.device,
        stopwatch=wishes.stopwatch,
    )
    outlook = Outlook(
        source,
        schedule,
        interludes,
        progress,
        shape,
        wishes.leftovers,
        skips=scorer is not None and wishes.nonfinite is NonFinite.SKIP,
        early=scorer is None and draw is not None,
        memory=memory,
    )
    accord = None
    if isinstance(ranks, Group) and turns is not None:
        accord = Accord(
            ranks,
            turns,
            built=_built_alike(strategy, progress, wishes, shape, source, memory),
            funnels=(early, late),
            history=history,
            memory=memory,
            outlook=outlook,
            alike=alike,
        )
    return Assembly(shape, clock, selector, early, history, pipeline, outlook, ranks, accord)


def _remember(examples: int, scorer: RunningScorer, needs: Needs, ranks: Ranks) -> Memory:
    """Return what a scorer remembers, or this rank's part of it."""
    if isinstance(ranks, Alone):
        return Memory(Ledger(examples, needs.depth), scorer, needs)
    shard = find_shard(examples, needs.depth, ranks)
    ledger = Ledger(shard.examples(examples), needs.depth)
    return Memory(
        ledger,
        scorer,
        needs,
        journal=Journal(examples, needs.depth),
        shard=shard,
        examples=examples,
    )


def _built_alike(
    strategy: Strategy,
    progress: Progress,
    wishes: Wishes,
    shape: Shape,
    source: Source,
    memory: Memory | None,
) -> dict[str, object]:
    """Return what must be the same on all ranks."""
    return {
        "strategy": strategy,
        "batch_size": shape.batch_size,
        "window": shape.window,
        "leftovers": wishes.leftovers,
        "nonfinite": wishes.nonfinite,
        "epochs": progress.epochs,
        # what is remembered is shared by index, so indices must mean the same
        "examples": None if memory is None else source.examples,
    }
