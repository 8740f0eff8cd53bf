"""Real training loops and scoring passes, timed a few batches at a time."""

import math
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.bench.workload import Workload
from selective_backprop_lab.recipe import Precision

Clock = Callable[[], float]
MIN_BATCHES = 4  # per epoch; with fewer, the time that its start takes cannot be told apart
HELD = 8  # batches of candidates on which scorers are tried


@dataclass(frozen=True)
class Spent:
    """What an arm took in a round: seconds by phase, candidates scored, training steps."""

    phases: Mapping[str, float]
    scored: float = 0
    steps: float = 0

    @property
    def seconds(self) -> float:
        """Seconds of all phases."""
        return sum(self.phases.values())


@contextmanager
def timed(stopwatch: sb.Stopwatch, phase: str = "other") -> Generator[dict[str, float]]:
    """Run the body, and fill the yielded dictionary with the seconds of each phase in it.

    Time outside of the body's own phases counts for `phase`.
    """
    before, spent = stopwatch.seconds, {}
    stopwatch.start()
    with stopwatch.phase(phase):
        yield spent
    stopwatch.stop()
    for name, seconds in stopwatch.seconds.items():
        spent[name] = seconds - before.get(name, 0.0)


class TimedLoop:
    """An endless training loop; each call runs some more batches.

    The first batch of an epoch is not timed by a call, because it takes longer: the order is drawn,
    remembered scores are sorted, and workers start.

    Args:
        epoch: returns an iterable over one epoch.
        train: called with each batch.
        stopwatch: times the phases of calls.
        clock: returns seconds.
        length: about how many batches an epoch has.

    Attributes:
        starts: seconds from the last batch of an epoch to the first of the next, for each epoch.
    """

    def __init__(
        self,
        epoch: Callable[[], Iterable[Any]],
        train: Callable[[Any], None],
        stopwatch: sb.Stopwatch,
        clock: Clock,
        *,
        length: float,
    ) -> None:
        self._epoch, self._train = epoch, train
        self._stopwatch, self._clock = stopwatch, clock
        self._apart = length >= MIN_BATCHES
        self._batches: Iterator[Any] = iter(())
        self.starts: list[float] = []

    def __call__(self, count: int) -> Spent:
        """Run `count` batches after an unmeasured one, and return what they took.

        Other loops have emptied the caches, and the unmeasured batch fills them again: a real epoch
        is not interrupted so often.
        """
        with timed(self._stopwatch):
            batch = self._run(1)
        with timed(self._stopwatch) as spent:
            batch = self._run(count)
        del batch
        return Spent(spent, steps=count)

    def _run(self, count: int) -> Any:
        # As in a user's loop, a batch lives until the next one is loaded. If all memory were freed
        # between two steps, allocating it again would take longer.
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
            self._stopwatch.stop()
            ended = self._clock()
            _ = self._stopwatch.total  # waits for a GPU's work on the batches before
            begun += self._clock() - ended
            self._batches = iter(self._epoch())
            first = next(self._batches, nothing)
            _ = self._stopwatch.total
            self.starts.append(self._clock() - begun)
            if first is not nothing:
                self._train(first)
            self._stopwatch.start()
        return batch


class TimedLoops:
    """The loops that are timed on a workload, and the passes that score its candidates.

    Args:
        workload: the model, data and recipe to train.
        clock: returns seconds.
    """

    def __init__(self, workload: Workload, clock: Clock) -> None:
        self._workload, self._clock = workload, clock
        self._stopwatch = sb.Stopwatch(workload.device, clock=clock)
        self._losses: Tensor | None = None  # like a batch, they live until the next ones

    def traditional(self) -> TimedLoop:
        """Return a loop that trains on every batch of the plain loader."""
        loader = self._workload.loader()

        def epoch() -> Iterator[Any]:
            batches = iter(loader)
            while True:
                with self._stopwatch.phase("load"):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch

        return self._loop(epoch, self._step, len(loader))

    def selecting(self, strategy: sb.Strategy) -> TimedLoop:
        """Return a loop that trains on the examples that a strategy selects."""
        workload = self._workload
        loader = sb.SelectiveLoader(
            workload.loader(scored=strategy.scores),
            workload.model,
            None,
            strategy,
            losses=workload.losses,
            batch_size=workload.batch_size,
            with_selection=True,
            device=workload.device,
            nonfinite="select",
            stopwatch=self._stopwatch,
            quiet=True,
        )
        records = strategy.needs is not None and strategy.needs.recordings
        if records:
            every = sb.Selection(torch.arange(workload.examples), torch.ones(workload.examples))
            # Put the ledger where the losses will be; on the host it would wait for each of them.
            loader.record(every, torch.rand(workload.examples, device=workload.device))

        def train(item: tuple[Any, sb.Selection]) -> None:
            batch, chosen = item
            note = (lambda losses: loader.record(chosen, losses)) if records else None
            self._step(batch, chosen.weights, note)

        return self._loop(lambda: loader, train, workload.examples / workload.window)

    def scoring(self, scorer: sb.scorers.AbstractScorer, precision: Precision) -> "ScoringTrial":
        """Try a scorer in a precision, and compare its scores with exact scores in fp32."""
        workload = self._workload
        batches = list(islice(workload.loader(scored=True), HELD))
        context = sb.scorers.Context(
            batch_size=workload.batch_size,
            window=workload.window,
            model=workload.model,
            losses=partial(workload.losses, precision=precision),
            device=workload.device,
            examples=workload.examples,
            rate=workload.rate,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                running = scorer.start(context)
                full = partial(workload.losses, precision=Precision.FP32)
                exact = sb.scorers.Forward().start(replace(context, losses=full))
                scores, truth = (
                    torch.cat([each.score(batch, None) for batch in batches])
                    for each in (running, exact)
                )
                agreement = sb.scorers.Agreement.between(scores, truth, rate=workload.rate)
            except Exception as error:  # the user's model or a compiler may raise anything
                return ScoringTrial(None, None, f"{type(error).__name__}: {error}")
        if not truth.isfinite().any():  # there is nothing to agree with
            agreement = replace(agreement, correlation=math.nan, overlap=math.nan)
        said = [str(w.message) for w in caught if issubclass(w.category, sb.SelectionWarning)]
        remark = said[0] if said else None

        def run() -> Spent:
            with timed(self._stopwatch, "score") as spent:
                scored = sum(len(running.score(batch, None)) for batch in batches)
            return Spent({"score": sum(spent.values())}, scored=scored)

        return ScoringTrial(run, agreement, remark)

    def _step(
        self,
        batch: Any,
        weights: Tensor | None = None,
        record: Callable[[Tensor], None] | None = None,
    ) -> None:
        """Take one training step."""
        workload, stopwatch = self._workload, self._stopwatch
        with stopwatch.phase("forward"):
            workload.optimizer.zero_grad()
            losses = self._losses = workload.losses(workload.model, batch)
            if weights is not None:
                losses = losses * weights.to(losses.device)
        if record is not None:
            with stopwatch.phase("select"):
                record(losses.detach())
        with stopwatch.phase("backward"):
            losses.mean().backward()
        with stopwatch.phase("step"):
            workload.optimizer.step()

    def _loop(
        self, epoch: Callable[[], Iterable[Any]], train: Callable[[Any], None], length: float
    ) -> TimedLoop:
        return TimedLoop(epoch, train, self._stopwatch, self._clock, length=length)


@dataclass(frozen=True, eq=False)
class ScoringTrial:
    """The result of trying a scorer."""

    run: Callable[[], Spent] | None  # a scoring pass to time; None if the scorer fails here
    agreement: sb.scorers.Agreement | None  # with exact scores; NaN if no exact score is finite
    remark: str | None  # a warning about the scorer, or why it fails here
