"""What a loader is built from, and what its stages derive from that, such as phases."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from selective_backprop._batches import losses as _losses
from selective_backprop._batches.structure import Layout
from selective_backprop._core.errors import ConfigurationError, warn
from selective_backprop._core.stopwatch import Stopwatch
from selective_backprop._core.types import LossesOf, OutputsOf
from selective_backprop._distributed.group import Group, find_ranks
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.rows import Leftovers, Shape
from selective_backprop._pipeline.source import Source
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Draw
from selective_backprop._sampling.schedule import Phase, RunningGate, Schedule
from selective_backprop.scorers import Needs
from selective_backprop.selectors import Paced, RunningSelector, Terms
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._auto.entropies import ExcessLosses
from selective_backprop.strategies._strategy import has_collective_forward

MOST_CANDIDATES = 2**53  # in a window: larger whole numbers are not exact as floats
SCORED = (Phase.SELECT, Phase.RESCORE)


@dataclass(frozen=True)
class Progress:
    source: Source
    epochs: float | None  # of the whole training; None if unknown
    measured: Callable[[], float] | None  # the user's `progress`, which returns the fraction

    def at(self, epoch: int, drawn: int) -> float | None:
        if self.measured is not None:
            return self.measured()
        if self.epochs is None:
            return None
        batches = self.source.batches
        part = drawn / batches if batches else 0.0
        return min(1.0, (epoch + part) / self.epochs)


@dataclass(frozen=True)
class Setup:
    """The arguments of `SelectiveLoader`, checked: from these, each stage builds itself."""

    source: Source
    strategy: Strategy
    progress: Progress
    model: nn.Module | None
    loss_fn: _losses.LossFunction | None
    losses: LossesOf | None
    outputs: OutputsOf | None
    batch_size: int | None
    leftovers: Leftovers
    with_selection: bool
    layout: Layout  # from `pad` and `whole`
    device: torch.device | None
    seed: int
    nonfinite: NonFinite
    stopwatch: Stopwatch | None
    process_group: Any
    overlap: bool

    @property
    def terms(self) -> Terms:
        return self.strategy.selector.terms

    @property
    def needs(self) -> Needs:
        return self.strategy.needs or Needs(passes=False)

    @property
    def on_gpu(self) -> bool:
        return self.device is not None and self.device.type == "cuda"

    @property
    def remembers(self) -> bool:
        return self.needs.remembers and self.source.examples is not None

    @property
    def indexed(self) -> bool:
        return self.with_selection or self.needs.indices or self.remembers

    @cached_property
    def ranks(self) -> Group:
        return find_ranks(self.process_group, self.device)

    @cached_property
    def together(self) -> bool:
        """Whether ranks must score equally many candidates; refuse a strategy that cannot."""
        skips, measured = self.nonfinite is NonFinite.SKIP, self.progress.measured is not None
        return has_collective_forward(self.strategy, self.model, skips, self.ranks, measured)

    @property
    def candidates(self) -> int:
        rows = self.shape.batch_size or 1
        return max(rows, round(rows / self.terms.rate))

    @cached_property
    def shape(self) -> Shape:
        terms, batch = self.terms, self.batch_size or self.source.batch_size
        if batch is None and not terms.keeps_everything:
            raise ConfigurationError(
                "the data loader does not say how many examples its batches have: pass batch_size= "
                "for the training batches"
            )
        rows = batch or 1
        if not rows / terms.rate < MOST_CANDIDATES:
            raise ConfigurationError(
                f"rate={terms.rate:g}: a batch of {rows} would be drawn from {rows / terms.rate:g} "
                "candidates, which is too many. Pass a larger rate"
            )
        window = max(rows, round(rows / terms.rate)) if terms.draw is Draw.EXACT else None
        if window is not None and abs(rows / window / terms.rate - 1) > 0.01:
            warn(
                f"each batch of {rows} is drawn from {window} candidates, a whole number, so "
                f"{rows / window:.4f} of them are kept, not {terms.rate:.4f} as rate= says"
            )
        unchanged = batch is None or batch == self.source.batch_size
        return Shape(batch, window, unchanged, terms.keeps_everything)

    @cached_property
    def context(self) -> Context:
        losses = None
        if self.strategy.scores:
            average = ExcessLosses() if self.terms.confidence else _losses.average_examples
            given = self.loss_fn, self.losses, self.outputs
            losses = _losses.find_losses(*given, average=average)
        return Context(
            batch_size=self.shape.batch_size or 1,
            window=self.shape.window,
            model=self.model,
            losses=losses,
            outputs=_losses.find_outputs(self.losses, self.outputs),
            device=self.device,
            examples=self.source.examples,
            rate=self.terms.rate,
        )


class PhasePlanner:
    def __init__(self, schedule: Schedule, progress: Progress, gate: RunningGate | None) -> None:
        self.schedule, self.progress = schedule, progress
        self.gate = gate  # decides from scores whether to select yet
        self.by_fraction = schedule.uses_fractions

    @property
    def turns_between_epochs(self) -> bool:
        if not self.by_fraction:
            return True
        if (epochs := self.progress.epochs) is None:
            return False
        turns = self.schedule.start * epochs, self.schedule.end * epochs
        return all(abs(turn - round(turn)) < 1e-9 for turn in turns)

    def phase(self, epoch: int, drawn: int) -> Phase:
        done = self.progress.at(epoch, drawn) if self.by_fraction else None
        return Phase.SELECT if self.schedule.selects(epoch, done) else Phase.PLAIN

    def pace(self, selector: RunningSelector, epoch: int) -> None:
        if isinstance(selector, Paced):
            selector.begin(self.progress.at(epoch, 0) or 0.0)

    def on_arrival(self, phase: Phase) -> Phase:
        if phase is Phase.SELECT and self.gate is not None and not self.gate.is_open:
            return Phase.PLAIN
        return phase
