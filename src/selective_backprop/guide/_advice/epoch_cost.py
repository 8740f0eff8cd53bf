"""What an epoch costs, plain and with `auto`, by real epochs of a copy of the training."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader

from selective_backprop._core.errors import LoaderError
from selective_backprop._core.stopwatch import Stopwatch, charged
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop._pipeline.source import Source
from selective_backprop._sampling.subset import Subset
from selective_backprop.guide._advice.training_copy import TrainingCopy
from selective_backprop.strategies import auto

WARM_UP = 2  # epochs before those that are measured: a model that learned nothing skips nothing
ROUNDS = 5  # at most, of a plain epoch and of one with `auto`
FEWEST = 8  # batches of an epoch that is measured, if the loader has so many


@dataclass(frozen=True)
class EpochCost:
    """Wall seconds of an epoch, measured on a copy of the model in interleaved rounds.

    Attributes:
        plain: of an epoch of plain training.
        auto: of one with `auto`, by the losses that the copy has after a short warm-up.
        kept: share of the examples that `auto` trained on in it.
        shares: what `load`, `forward`, `backward`, `step` and `other` take of a plain epoch.
        measured: examples of the epochs that were measured; seconds are scaled to all examples.
        rounds: how many there were.
    """

    plain: float
    auto: float
    kept: float
    shares: Mapping[str, float]
    measured: int
    rounds: int

    @property
    def per_example(self) -> float:
        """How many times as long an example takes with `auto` as in plain training."""
        return self.auto / self.plain / self.kept

    def __str__(self) -> str:
        """Return what was measured, in words."""
        ordered = sorted(self.shares.items(), key=lambda item: -item[1])
        parts = ", ".join(f"{phase} {share:.0%}" for phase, share in ordered if share >= 0.01)
        return (
            f"a plain epoch takes {self.plain:.2g} s ({parts}), one with auto {self.auto:.2g} s, "
            f"in which it trains on {self.kept:.0%} of the examples"
        )


def measure_epochs(copied: TrainingCopy, source: Source, *, seconds: float) -> EpochCost | None:
    """Measure epochs of at most as many batches as fit into the seconds, `FEWEST` in any case.

    Args:
        copied: is trained.
        source: the user's loader, whose examples are known by index.
        seconds: about how long it may take.

    Returns:
        What was measured; None if the copy diverged, so that losses are not finite.

    Raises:
        LoaderError: if the loader yields no batch.
        LossError: if a batch does not give one loss per example.
    """
    batch = next(iter(source.copy_with(source.indices())), None)
    if batch is None:
        raise LoaderError("the loader yielded nothing: there is no batch to measure on")
    step = min(_timed(partial(copied.step, batch), copied.device)[0] for _ in range(2))
    sizes, strategy = source.sizes(), auto()
    examples = (source.examples or 0) if sizes is None else sum(sizes)
    passes = 1 + WARM_UP + 2 * ROUNDS
    rows = max(FEWEST, round(seconds / (passes * step))) * (source.batch_size or 1)
    if source.batch_size is not None and rows < examples:
        total = source.examples or 0
        part = Subset(torch.randperm(total)[: round(total * rows / examples)], total)
        source, strategy = source.within(part), strategy.within(part)
    plain = partial(_train, copied, source.copy_with(source.indices()))
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
    selecting = partial(_train_with, copied, door)
    begun, watch = time.perf_counter(), Stopwatch(copied.device)
    for _ in range(WARM_UP):
        selecting()
    watch.start()
    measured = plain(watch)
    watch.stop()
    rounds: list[tuple[float, float, float]] = []
    while copied.finite and len(rounds) < ROUNDS:
        whole, _ = _timed(plain, copied.device)
        less, trained = _timed(selecting, copied.device)
        rounds.append((whole, less, trained / measured))
        if time.perf_counter() - begun > seconds:
            break
    if not copied.finite:
        return None
    whole, less, kept = (median(column) for column in zip(*rounds, strict=True))
    scale = examples / measured
    return EpochCost(
        plain=scale * whole,
        auto=scale * less,
        kept=kept,
        shares={phase: spent / watch.total for phase, spent in watch.seconds.items()},
        measured=measured,
        rounds=len(rounds),
    )


def _timed(run: Callable[[], Any], device: torch.device | None) -> tuple[float, Any]:
    """Return the seconds that a call took, and what it returned."""
    watch = Stopwatch(device)
    watch.start()
    found = run()
    watch.stop()
    return watch.total, found


def _train(copied: TrainingCopy, loader: DataLoader[Any], watch: Stopwatch | None = None) -> int:
    """Train on a plain epoch, and return the examples in it."""
    batches, rows = iter(loader), 0
    while True:
        with charged(watch, "load"):
            batch = next(batches, None)
        if batch is None:
            return rows
        rows += len(copied.step(batch, watch))


def _train_with(copied: TrainingCopy, door: SelectiveLoader) -> int:
    """Train on what is selected in an epoch, and return how many examples that is."""
    rows = 0
    for batch, selection in door:
        losses = copied.step(batch)
        door.record(selection, losses)
        rows += len(losses)
    return rows
