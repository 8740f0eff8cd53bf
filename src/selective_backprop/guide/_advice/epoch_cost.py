"""Time epochs of a copy of the training, with and without `auto`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from selective_backprop._core.errors import LoaderError
from selective_backprop._core.stopwatch import Stopwatch
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop._pipeline.source import Source
from selective_backprop._sampling.subset import Subset
from selective_backprop.guide._advice.training_copy import TrainingCopy
from selective_backprop.strategies import auto

WARM_UP = 2  # epochs before the measured ones; an untrained model would skip nothing
ROUNDS = 5  # at most; each round is a plain epoch and an epoch with `auto`
FEWEST = 8  # batches in a measured epoch, if the loader has as many


@dataclass(frozen=True)
class EpochCost:
    """Seconds per epoch with and without `auto`, measured on a copy of the model.

    Attributes:
        plain: seconds per epoch of plain training, which is training without `auto`.
        auto: seconds per epoch with `auto`, timed after two warm-up epochs that record losses.
        kept: share of the examples that `auto` trained on in the measured epochs, in (0, 1].
        measured: number of examples in a measured epoch. If this is only a part of the data set,
            `plain` and `auto` are scaled up to the whole data set.
    """

    plain: float
    auto: float
    kept: float
    measured: int

    @property
    def per_example(self) -> float:
        """Seconds per trained example with `auto`, divided by seconds per example without it."""
        return self.auto / self.plain / self.kept

    def __str__(self) -> str:
        """Return what was measured, in a sentence."""
        return (
            f"a plain epoch takes {self.plain:.2g} s, an epoch with auto {self.auto:.2g} s and "
            f"trains on {self.kept:.0%} of the examples"
        )


def measure_epochs(copied: TrainingCopy, source: Source, *, seconds: float) -> EpochCost | None:
    """Time epochs, shortened so that all fit into the seconds, but not below `FEWEST` batches.

    The examples of the source must be known by index. Returns None if the copy diverged.

    Raises:
        LoaderError: if the loader yields no batch.
        LossError: if a batch does not give one loss per example.
    """
    begun = time.perf_counter()

    def timed(run: Callable[[], Any]) -> tuple[float, Any]:
        watch = Stopwatch(copied.device)
        watch.start()
        found = run()
        watch.stop()
        return watch.total, found

    def time_step() -> float:  # its batches end with it, and so do their workers
        batches = iter(source.copy_with(source.indices()))
        batch = next(batches, None)
        if batch is None:
            raise LoaderError("the loader yielded nothing, so there is no batch to time")
        copied.step(batch)  # the first step takes longer
        # Loading included; a loader of one batch has only that one to step on.
        return min(timed(lambda: copied.step(next(batches, batch)))[0] for _ in range(2))

    step = time_step()
    sizes, strategy = source.sizes(), auto()
    examples = (source.examples or 0) if sizes is None else sum(sizes)
    passes = 1 + WARM_UP + 2 * ROUNDS
    rows = max(FEWEST, round(seconds / (passes * step))) * (source.batch_size or 1)
    divisible = source.attribute == "batch_sampler" and source.batch_size is not None
    if divisible and rows < examples:
        total = source.examples or 0
        part = Subset(torch.randperm(total)[: round(total * rows / examples)], total)
        source, strategy = source.within(part), strategy.within(part)
    door = SelectiveLoader(
        source.loader,
        copied.model,
        None,
        strategy,
        losses=copied.losses,
        with_selection=True,
        device=copied.device,
        nonfinite="select",
        quiet=True,
    )

    def plain() -> int:
        return sum(len(copied.step(each)) for each in source.copy_with(source.indices()))

    def selecting() -> int:
        rows = 0
        for each, chosen in door:
            losses = copied.step(each)
            door.record(chosen, losses)
            rows += len(losses)
        return rows

    for _ in range(WARM_UP):
        selecting()
    rounds: list[tuple[float, ...]] = []
    while len(rounds) < ROUNDS and (not rounds or time.perf_counter() - begun < seconds):
        rounds.append((*timed(plain), *timed(selecting)))
    if copied.diverged:
        return None
    plain_seconds, measured, auto_seconds, kept = zip(*rounds, strict=True)
    scale = examples / measured[0]
    # Over all rounds: what an epoch keeps may wait for the next, to fill a batch.
    share = min(max(1, sum(kept)), sum(measured)) / sum(measured)
    middles = scale * median(plain_seconds), scale * median(auto_seconds)
    return EpochCost(*middles, share, int(measured[0]))
