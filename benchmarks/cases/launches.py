"""Counts: host waits and kernels of a batch on a CUDA device that is made up, calls on a CPU.

Where steps are small, calls of the package's functions are most of the time that selection takes.
Unlike time, all these numbers are the same on any machine. Comprehensions do not count as calls,
since newer versions of Python call none. A generator counts once, not each time that it continues.
"""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from benchmarks.case import ROOT, Row, case, value

BATCH, RATE, STEADY = 16, 1 / 3, 4
COUNTED, EXAMPLES = 480, 256  # examples where calls are counted, and where launches are
HOME = str(Path(sb.__file__).parent)
Counts = tuple[float, float]  # host waits of a batch, in the lab those of an epoch, and kernels


class Net(nn.Module):
    """A net with buffers. With the copies of its batch, its step takes 25 kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.GELU())
        self.head = nn.Linear(32, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


def net(device: str) -> nn.Module:
    torch.manual_seed(0)
    return Net().to(device)


def examples(count: int, pinned: bool = False, size: int = BATCH) -> DataLoader[Any]:
    """Return a loader of examples in memory, so many at a time."""
    inputs = torch.randn(count, 6, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(inputs, inputs[:, :3].argmax(1))
    order = torch.Generator().manual_seed(2)
    return DataLoader(data, size, shuffle=True, drop_last=True, pin_memory=pinned, generator=order)


def steps_of(model: nn.Module, batches: Iterable[Any], loss_fn: Any) -> Iterator[None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
        yield


def through_loader(
    data: DataLoader[Any],
    strategy: sb.Strategy,
    epochs: int,
    device: str = "cpu",
    epoch: int = -1,
    **options: Any,
) -> Iterator[None]:
    """Return the steps of an epoch, by default the last, after all epochs before it."""
    model, seeded = net(device), torch.Generator().manual_seed(3)
    options |= {"epochs": epochs, "generator": seeded, "quiet": True}
    loader = sb.SelectiveLoader(data, model, nn.CrossEntropyLoss(), strategy, **options)
    for _ in range(epoch % epochs):
        for _ in steps_of(model, loader, loader.loss_fn):
            pass
    return steps_of(model, loader, loader.loss_fn)


def in_step(strategy: sb.Strategy, batches: Iterable[Any], device: str = "cpu") -> Iterator[None]:
    """Return the steps of a `SelectiveStep` after the first."""
    selective = sb.SelectiveStep(net(device), nn.CrossEntropyLoss(), strategy)
    steps = (selective(batch).loss.backward() for batch in batches)
    next(steps)
    return steps


@contextmanager
def counting() -> Iterator[SimpleNamespace]:
    """Count the calls inside, as `calls` of what is yielded."""
    counted = SimpleNamespace(calls=0)
    starts: dict[Any, int] = {}  # of the package's functions; -1 for others

    def note(frame: Any, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in starts:
            made = code.co_name.startswith("<") and code.co_name != "<lambda>"
            ours = code.co_filename.startswith(HOME) and not made
            starts[code] = frame.f_lasti if ours else -1
        start = starts[code]
        goes_on = code.co_flags & inspect.CO_GENERATOR and frame.f_lasti != start
        counted.calls += start >= 0 and not goes_on

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield counted
    finally:
        sys.setprofile(before)


def per_step(steps: Iterator[None]) -> float:
    with counting() as counted:
        taken = sum(1 for _ in steps)
    return counted.calls / taken


def called(strategy: sb.Strategy, epoch: int = -1) -> float:
    # In the last epoch `stale_sb` selects by remembered scores.
    return per_step(through_loader(examples(COUNTED), strategy, 3, epoch=epoch))


def called_in_step(strategy: sb.Strategy) -> float:
    batches = list(examples(COUNTED))
    return per_step(in_step(strategy, [batches[0], *batches]))


def watched(steps: Iterator[Any]) -> Counts:
    """Return the counts of a batch, after the first, which finds things out."""
    import made_up_cuda

    next(steps)
    with made_up_cuda.watch() as seen:
        for _ in islice(steps, STEADY):
            pass
    return len(seen.waits) / STEADY, seen.kernels.total() / STEADY


def plain() -> Counts:
    batches = examples(EXAMPLES, pinned=True)
    pairs = ([part.cuda(non_blocking=True) for part in batch] for batch in batches)
    return watched(steps_of(net("cuda"), pairs, nn.CrossEntropyLoss()))


def launched(strategy: sb.Strategy, *, rows: int = BATCH, **options: Any) -> Counts:
    """Count what a strategy takes in its last epoch, if it scores so many rows at once."""
    data, options = examples(EXAMPLES, pinned=True, size=rows), {"batch_size": BATCH, **options}
    return watched(through_loader(data, strategy, 4, "cuda", **options))


def launched_in_step(strategy: sb.Strategy) -> Counts:
    inputs, targets = (column.cuda() for column in next(iter(examples(EXAMPLES))))
    return watched(in_step(strategy, repeat((inputs, targets)), "cuda"))


def in_lab(arm: str, *, steady: int = 3) -> Counts:
    """Count what the lab's own loop takes in the last epochs of a run."""
    import made_up_cuda

    from selective_backprop_lab.bench.workload import made_up

    # Here, since what else is in this file needs no extra.
    from selective_backprop_lab.budget import Budget
    from selective_backprop_lab.data.augment import Augmentation
    from selective_backprop_lab.recipe import find_recipe
    from selective_backprop_lab.strategies import StrategyOptions
    from selective_backprop_lab.training.run import TrainingRun
    from selective_backprop_lab.training.run_config import RunConfig

    images = Augmentation(shift=4, flip=True, cutout=8)
    recipe = replace(find_recipe("cifar10"), model="linear", batch_size=BATCH, augmentation=images)
    length, options = Budget("epochs", float(steady + 3)), StrategyOptions()
    plan = RunConfig(recipe, arm, options, 0, length, evaluations=1, device="cuda")
    run = TrainingRun(plan, made_up("3x8x8/10", EXAMPLES))
    seen_at: list[tuple[int, int]] = []

    def count() -> bool:
        if run.loader.stats.candidates > (length.value - steady) * EXAMPLES:
            seen_at.append((len(seen.waits), seen.kernels.total()))
        return False

    with made_up_cuda.watch() as seen:
        run.advance(count)
    (waits, kernels), (all_waits, all_kernels) = seen_at[0], seen_at[-1]
    return (all_waits - waits) / steady, (all_kernels - kernels) / (len(seen_at) - 1)


# How calls of the package's functions are counted, and the most of them in a training step.
CALLS: dict[str, tuple[Callable[[], float], int]] = {
    "traditional": (partial(called, sb.traditional()), 20),
    "random_backprop": (partial(called, sb.random_backprop(RATE)), 54),
    "selective_backprop": (partial(called, sb.selective_backprop(RATE)), 150),
    "stale_sb, scored": (partial(called, sb.stale_sb(RATE), epoch=1), 200),
    "stale_sb": (partial(called, sb.stale_sb(RATE)), 107),
    "recorded_sb": (partial(called, sb.recorded_sb(RATE)), 108),
    "infobatch": (partial(called, sb.infobatch()), 84),
    "auto": (partial(called, sb.auto()), 81),
    "SelectiveStep": (partial(called_in_step, sb.selective_backprop(RATE, warmup_epochs=0)), 67),
    "SelectiveStep, random_backprop": (partial(called_in_step, sb.random_backprop(RATE)), 41),
}

FULL = sb.selective_backprop(RATE, history=EXAMPLES)  # its history is full by the last epoch
STALE = sb.stale_sb(RATE, epochs=2, history=EXAMPLES)  # it scores in the last epoch
# How host waits and kernels are counted, and the most of both. With None, kernels are not judged.
# Counting visits in a ledger takes two kernels more every 64 batches.
LAUNCHES: dict[str, tuple[Callable[[], Counts], int, int | None]] = {
    "plain loop": (plain, 0, 25),
    "traditional": (partial(launched, sb.traditional()), 0, 25),
    "random_backprop": (partial(launched, sb.random_backprop(RATE)), 0, 25),
    "auto": (partial(launched, sb.auto()), 0, 42),
    "infobatch": (partial(launched, sb.infobatch()), 0, 40),
    "easy_skip": (partial(launched, sb.easy_skip()), 0, 40),
    "recorded_sb": (partial(launched, sb.recorded_sb(RATE)), 0, 38),
    "selective_backprop": (partial(launched, FULL), 0, 89),  # 30 for its passes and their copies
    "selective_backprop, window at once": (partial(launched, FULL, rows=3 * BATCH), 0, 65),
    "stale_sb, scored": (partial(launched, STALE), 0, 115),
    "stale_sb, scored, window at once": (partial(launched, STALE, rows=3 * BATCH), 0, 85),
    "kath18": (partial(launched, sb.kath18()), 0, 65),
    'selective_backprop, nonfinite="skip"': (partial(launched, FULL, nonfinite="skip"), 1, 103),
    "SelectiveStep, random_backprop": (
        partial(launched_in_step, sb.random_backprop(RATE)),
        *(0, None),
    ),
    "lab, traditional": (partial(in_lab, "traditional"), 0, 24),
    "lab, random-backprop": (partial(in_lab, "random-backprop"), 0, 30),
    "lab, selective-backprop": (partial(in_lab, "selective-backprop"), 1, 92),
    "lab, stale-sb": (partial(in_lab, "stale-sb"), 1, 55),
    "lab, auto": (partial(in_lab, "auto"), 1, 34),
}


@case("src/selective_backprop")
def calls() -> Iterator[Row]:
    """Calls of the package's functions in a training step: the same on every machine."""
    for name, (count, most) in CALLS.items():
        yield value("calls", count(), "a step", most, strategy=name)


@case("src/selective_backprop")
def launches() -> Iterator[Row]:
    """Host waits and kernels of a steady batch by strategy: the same on every machine."""
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.launches"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": "src:.:tests/fixtures"},
        check=True,
        stdout=subprocess.PIPE,
    )
    for name, (waits, kernels) in json.loads(found.stdout).items():
        _, most_waits, most_kernels = LAUNCHES[name]
        of = "an epoch" if name.startswith("lab") else "a batch"
        yield value("host waits", waits, of, most_waits, strategy=name)
        yield value("kernels", kernels, "a batch", most_kernels, strategy=name)
