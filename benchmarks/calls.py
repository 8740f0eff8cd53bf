"""Count the calls of the package's functions that a training step on a CPU takes.

Where steps are small, calls are the time that selection takes. They are counted, so they are the
same on any machine. Comprehensions do not count, since newer versions of Python have none to call,
and a generator counts once, not each time that it goes on.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

EXAMPLES, BATCH, EPOCHS = 480, 16, 3  # in the last epoch `stale` selects by remembered scores
RATE = 1 / 3
HOME = str(Path(sb.__file__).parent)


@dataclass
class Counted:
    """How many calls were seen."""

    calls: int = 0


@contextmanager
def counting() -> Iterator[Counted]:
    """Count calls inside."""
    counted = Counted()
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


def model() -> nn.Module:
    """Return a net with buffers, so that all that scoring must leave alone is there."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 3))


def examples() -> DataLoader[Any]:
    """Return a loader of examples in memory."""
    inputs = torch.randn(EXAMPLES, 6, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(inputs, inputs[:, :3].argmax(1))
    order = torch.Generator().manual_seed(2)
    return DataLoader(data, BATCH, shuffle=True, drop_last=True, generator=order)


def train(net: nn.Module, batches: Iterable[Any], loss_fn: Any) -> int:
    """Train on batches; return how many there were."""
    optimizer, steps = torch.optim.SGD(net.parameters(), lr=0.1), 0
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_fn(net(inputs), targets).backward()
        optimizer.step()
        steps += 1
    return steps


def through_loader(strategy: sb.Strategy, epoch: int = EPOCHS - 1) -> float:
    """Return the calls of a step in an epoch, the last one by default."""
    net, seeded = model(), torch.Generator().manual_seed(3)
    loss_fn = nn.CrossEntropyLoss()
    loader = sb.SelectiveLoader(
        examples(), net, loss_fn, strategy, epochs=EPOCHS, generator=seeded, quiet=True
    )
    for _ in range(epoch):
        train(net, loader, loader.loss_fn)
    with counting() as counted:
        steps = train(net, loader, loader.loss_fn)
    return counted.calls / steps


def step(strategy: sb.Strategy) -> float:
    """Return the calls of a step of `SelectiveStep`."""
    net = model()
    selective = sb.SelectiveStep(net, nn.CrossEntropyLoss(), strategy)
    batches = list(examples())
    selective(batches[0])
    with counting() as counted:
        for batch in batches:
            selective(batch).loss.backward()
    return counted.calls / len(batches)


ARMS: dict[str, Callable[[], float]] = {
    "traditional": lambda: through_loader(sb.traditional()),
    "random_backprop": lambda: through_loader(sb.random_backprop(RATE)),
    "selective_backprop": lambda: through_loader(sb.selective_backprop(RATE)),
    "stale_sb, scored": lambda: through_loader(sb.stale_sb(RATE), epoch=1),
    "stale_sb": lambda: through_loader(sb.stale_sb(RATE)),
    "recorded_sb": lambda: through_loader(sb.recorded_sb(RATE)),
    "infobatch": lambda: through_loader(sb.infobatch()),
    "auto": lambda: through_loader(sb.auto()),
    "SelectiveStep": lambda: step(sb.selective_backprop(RATE, warmup_epochs=0)),
    "SelectiveStep, random_backprop": lambda: step(sb.random_backprop(RATE)),
}
