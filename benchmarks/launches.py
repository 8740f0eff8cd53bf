"""Count host waits and kernels of a steady batch on a CUDA device that is made up.

`python -m benchmarks.launches` prints them as JSON, by strategy. It needs a process of its own: the
device must be there before torch is imported.
"""

import made_up_cuda  # first  # isort: skip

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.made_up import made_up
from selective_backprop_lab.recipe import find_recipe
from selective_backprop_lab.strategies import StrategyOptions
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import RunConfig

EXAMPLES, BATCH, EPOCHS, STEADY = 256, 16, 4, 4
RATE = 1 / 3


class Counts(NamedTuple):
    """What one batch of training takes: host waits, in the lab those of an epoch, and kernels."""

    waits: float
    kernels: float


class Net(nn.Module):
    """A net whose step, with the copies of its batch, takes 25 kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.GELU())
        self.head = nn.Linear(32, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.body(inputs))


def steady(steps: Iterator[Any]) -> Counts:
    """Return the counts of a batch, after the first, which finds things out."""
    next(steps)
    with made_up_cuda.watch() as seen:
        for _ in range(STEADY):
            next(steps)
    return Counts(len(seen.waits) / STEADY, seen.kernels.total() / STEADY)


def examples() -> DataLoader[Any]:
    """Return a loader of examples in pinned memory."""
    inputs = torch.randn(EXAMPLES, 6, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(inputs, inputs[:, :3].argmax(1))
    order = torch.Generator().manual_seed(2)
    return DataLoader(data, BATCH, shuffle=True, drop_last=True, pin_memory=True, generator=order)


def steps_of(model: nn.Module, batches: Iterable[Any], loss_fn: Any) -> Iterator[None]:
    """Train on batches, one at a time."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
        yield


def plain() -> Counts:
    """Count what the bare loop takes."""
    torch.manual_seed(0)
    pairs = ([part.cuda(non_blocking=True) for part in batch] for batch in examples())
    return steady(steps_of(Net().cuda(), pairs, nn.CrossEntropyLoss()))


def through_loader(make: Callable[[], sb.Strategy], **options: Any) -> Counts:
    """Count what a strategy takes in its last epoch."""
    torch.manual_seed(0)
    model = Net().cuda()
    seeded = torch.Generator().manual_seed(3)
    door = sb.SelectiveLoader(
        examples(),
        model,
        nn.CrossEntropyLoss(),
        make(),
        epochs=EPOCHS,
        generator=seeded,
        quiet=True,
        **options,
    )
    for _ in range(EPOCHS - 1):
        for _ in steps_of(model, door, door.loss_fn):
            pass
    return steady(steps_of(model, door, door.loss_fn))


def step(strategy: sb.Strategy) -> Counts:
    """Count what `SelectiveStep` takes."""
    torch.manual_seed(0)
    model = Net().cuda()
    inputs, targets = (column.cuda() for column in next(iter(examples())))
    selective = sb.SelectiveStep(model, nn.CrossEntropyLoss(), strategy)

    def steps() -> Iterator[None]:
        while True:
            selective((inputs, targets)).loss.backward()
            yield

    return steady(steps())


def in_lab(arm: str, *, steady: int = 3) -> Counts:
    """Count what the lab's own loop takes in the last epochs of a run."""
    images = Augmentation(shift=4, flip=True, cutout=8)
    recipe = replace(find_recipe("cifar10"), model="linear", batch_size=BATCH, augmentation=images)
    length = Budget("epochs", float(steady + 3))
    plan = RunConfig(
        recipe, arm, StrategyOptions(), seed=0, length=length, evaluations=1, device="cuda"
    )
    run = TrainingRun(plan, made_up("3x8x8/10", EXAMPLES))
    seen_at: list[tuple[int, int]] = []

    def count() -> bool:
        if run.loader.stats.candidates > (length.value - steady) * EXAMPLES:
            seen_at.append((len(seen.waits), seen.kernels.total()))
        return False

    with made_up_cuda.watch() as seen:
        run.advance(count)
    (waits, kernels), (all_waits, all_kernels) = seen_at[0], seen_at[-1]
    return Counts((all_waits - waits) / steady, (all_kernels - kernels) / (len(seen_at) - 1))


LAB = ("traditional", "random-backprop", "selective-backprop", "stale-sb", "auto")
ARMS: dict[str, Callable[[], Counts]] = {
    "plain loop": plain,
    "traditional": lambda: through_loader(sb.traditional),
    "random_backprop": lambda: through_loader(lambda: sb.random_backprop(RATE)),
    "auto": lambda: through_loader(sb.auto),
    "infobatch": lambda: through_loader(sb.infobatch),
    "easy_skip": lambda: through_loader(sb.easy_skip),
    "recorded_sb": lambda: through_loader(lambda: sb.recorded_sb(RATE)),
    "selective_backprop": lambda: through_loader(
        lambda: sb.selective_backprop(RATE, history=EXAMPLES)  # full by the last epoch
    ),
    "kath18": lambda: through_loader(sb.kath18),
    "drop_zero": lambda: through_loader(sb.drop_zero),
    'selective_backprop, nonfinite="skip"': lambda: through_loader(
        lambda: sb.selective_backprop(RATE, history=EXAMPLES), nonfinite="skip"
    ),
    "SelectiveStep, random_backprop": lambda: step(sb.random_backprop(RATE)),
    **{f"lab, {arm}": lambda arm=arm: in_lab(arm) for arm in LAB},
}

if __name__ == "__main__":
    print(json.dumps({name: count() for name, count in ARMS.items()}))
