"""Real training loops on a copy of a training, run a few batches at a time."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches.structure import move_batch
from selective_backprop._core.stopwatch import Stopwatch
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._sampling.draws import Selection
from selective_backprop._sampling.schedule import Schedule
from selective_backprop.guide._scorers import exact_scorer
from selective_backprop.guide._spending import Clock, Spent, timed
from selective_backprop.guide._subject import Subject
from selective_backprop.scorers import AbstractScorer
from selective_backprop.strategies import (
    Strategy,
    random_backprop,
    recorded_sb,
    selective_backprop,
)

MIN_BATCHES = 4  # an epoch of fewer batches does not show what its start takes
AT_ONCE = Schedule()


class TimedLoop:
    """An endless loop, of which each call runs some more batches.

    The first batch of an epoch is not charged to a call, since it takes longer: the order is
    drawn, remembered scores are sorted, workers start.

    Args:
        epoch: returns an iterable over one epoch.
        train: called with each batch.
        stopwatch: charged with the seconds of calls.
        clock: returns seconds.
        length: about how many batches an epoch has.
        unwatched: runs while no phase is told apart; None where telling them apart is free. On a
            GPU the end of a phase waits for it, and keeps what overlaps from overlapping.

    Attributes:
        starts: seconds until the first batch of each epoch was there, including those that the
            end of the epoch before took.
    """

    def __init__(
        self,
        epoch: Callable[[], Iterable[Any]],
        train: Callable[[Any], None],
        stopwatch: Stopwatch,
        clock: Clock,
        *,
        length: float,
        unwatched: Stopwatch | None = None,
    ) -> None:
        self._epoch, self._train = epoch, train
        self._stopwatch, self._unwatched, self._clock = stopwatch, unwatched, clock
        self._running = stopwatch
        self._apart = length >= MIN_BATCHES
        self._batches: Iterator[Any] = iter(())
        self.starts: list[float] = []

    def __call__(self, count: int) -> Spent:
        """Run `count` batches after an unmeasured one, and return what they took.

        Other loops have emptied the caches. The unmeasured batch fills them again, since a real
        epoch is not interrupted so often. Where telling phases apart costs time, as many batches
        more are run unwatched: they say how long all takes, the first ones in what shares.
        """
        with timed(self._stopwatch):
            batch = self._run(1)
        with timed(self._stopwatch) as spent:
            batch = self._run(count)
        if self._unwatched is not None:
            self._running, before = self._unwatched, self._unwatched.total
            self._unwatched.start()
            batch = self._run(count)
            self._unwatched.stop()
            self._running = self._stopwatch
            share = (self._unwatched.total - before) / max(sum(spent.values()), 1e-9)
            spent = {phase: share * seconds for phase, seconds in spent.items()}
        del batch
        return Spent(spent, steps=count)

    def _run(self, count: int) -> Any:
        # As in a user's loop, a batch lives until the next is there. Memory that is all freed
        # between two steps would be slower to allocate.
        for _ in range(count):
            batch = self._next()
            self._train(batch)
        return batch

    def _next(self) -> Any:
        nothing = object()
        begun = self._clock()
        while (batch := next(self._batches, nothing)) is nothing:
            if not self._apart:
                self._batches = iter(self._epoch())
                continue
            self._running.stop()
            self._batches = iter(self._epoch())
            first = next(self._batches, nothing)
            self.starts.append(self._clock() - begun)
            if first is not nothing:
                self._train(first)
            self._running.start()
        return batch


class TimedLoops:
    """The loops from which all strategies' epochs are computed.

    Args:
        subject: the copy that is trained.
        clock: returns seconds.
    """

    def __init__(self, subject: Subject, clock: Clock) -> None:
        self._subject, self._clock = subject, clock
        self._stopwatch = Stopwatch(subject.device, clock=clock)
        on_gpu = subject.device is not None and subject.device.type == "cuda"
        self._unwatched = Stopwatch(subject.device, clock=clock) if on_gpu else None
        self._length = subject.examples / subject.window
        self._losses: Tensor | None = None  # like a batch, they live until the next

    @property
    def stopwatch(self) -> Stopwatch:
        """The stopwatch that is charged with what the loops take."""
        return self._stopwatch

    def traditional(self) -> TimedLoop:
        """Return a loop that trains on every batch of the bare loader."""

        def epoch() -> Iterator[Any]:
            subject = self._subject
            batches = iter(subject.loader())
            while True:
                with self._stopwatch.phase("load"):
                    batch = next(batches, None)
                    if batch is None:
                        return
                    if subject.device is not None:
                        batch = move_batch(batch, subject.device)
                yield batch

        length = self._subject.examples / self._subject.batch_size
        return self._loop(epoch, self.step, length)

    def random(self) -> TimedLoop:
        """Return a loop that trains on a random share, drawn before loading."""
        loader = self._loader(random_backprop(self._subject.rate, schedule=AT_ONCE))
        return self._loop(lambda: loader, self._weighted, self._length)

    def scored(self, scorer: AbstractScorer | None = None) -> TimedLoop:
        """Return a loop that scores candidates, by default exactly, then selects from them."""
        scorer = scorer or exact_scorer(self._subject.autocast)
        strategy = selective_backprop(self._subject.rate, warmup_epochs=0, scorer=scorer)
        loader = self._loader(strategy, scored=True)
        return self._loop(lambda: loader, self._weighted, self._length)

    def recalled(self) -> TimedLoop:
        """Return a loop that selects by remembered losses before loading, and records new ones."""
        loader = self._loader(recorded_sb(self._subject.rate, schedule=AT_ONCE))
        count = self._subject.source.examples or 0
        every = Selection(torch.arange(count), torch.ones(count))
        # Where training's losses will be: a ledger on the host would wait for each of them.
        loader.record(every, torch.rand(count, device=self._subject.device))

        def train(item: tuple[Any, Selection]) -> None:
            batch, selection = item
            self.step(batch, selection.weights, lambda losses: loader.record(selection, losses))

        return self._loop(lambda: loader, train, self._length)

    def loading(self) -> TimedLoop:
        """Return a loop that only takes batches from the user's workers, at their full speed."""
        stopwatch = Stopwatch(clock=time.perf_counter)
        length = self._subject.examples / self._subject.batch_size
        return TimedLoop(
            lambda: self._subject.loader(workers=True),
            lambda batch: None,
            stopwatch,
            time.perf_counter,
            length=length,
        )

    def step(
        self,
        batch: Any,
        weights: Tensor | None = None,
        record: Callable[[Tensor], None] | None = None,
    ) -> None:
        """Take one training step on the copy."""
        subject, stopwatch = self._subject, self._stopwatch
        with stopwatch.phase("forward"):
            subject.optimizer.zero_grad()
            losses = self._losses = subject.example_losses(batch)
            if weights is not None:
                losses = losses * weights.to(losses.device)
        if record is not None:
            with stopwatch.phase("select"):
                record(losses.detach())
        with stopwatch.phase("backward"):
            losses.mean().backward()
        with stopwatch.phase("step"):
            subject.optimizer.step()

    def _weighted(self, item: tuple[Any, Selection]) -> None:
        batch, selection = item
        self.step(batch, selection.weights)

    def _loop(
        self, epoch: Callable[[], Iterable[Any]], train: Callable[[Any], None], length: float
    ) -> TimedLoop:
        return TimedLoop(
            epoch, train, self._stopwatch, self._clock, length=length, unwatched=self._unwatched
        )

    def _loader(self, strategy: Strategy, *, scored: bool = False) -> SelectiveLoader:
        subject = self._subject
        return SelectiveLoader(
            subject.loader(scored=scored),
            subject.model,
            None,
            strategy,
            losses=subject.losses,
            batch_size=subject.batch_size,
            with_selection=True,
            pad=subject.layout.pad,
            whole=subject.layout.whole,
            device=subject.device,
            nonfinite=NonFinite.SELECT,
            stopwatch=self._stopwatch,
            quiet=True,
        )
