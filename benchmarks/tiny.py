"""A small net and its loops, of which host waits, kernels and calls are counted."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

BATCH, RATE = 16, 1 / 3


class Net(nn.Module):
    """A net with buffers. With the copies of its batch, its step takes 25 kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.GELU())
        self.head = nn.Linear(32, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.head(self.body(inputs))


def examples(count: int, pinned: bool = False, size: int = BATCH) -> DataLoader[Any]:
    """Return a loader of examples in memory, so many at a time."""
    inputs = torch.randn(count, 6, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(inputs, inputs[:, :3].argmax(1))
    order = torch.Generator().manual_seed(2)
    return DataLoader(data, size, shuffle=True, drop_last=True, pin_memory=pinned, generator=order)


def net(device: str) -> nn.Module:
    """Return the net, always with the same weights."""
    torch.manual_seed(0)
    return Net().to(device)


def steps_of(model: nn.Module, batches: Iterable[Any], loss_fn: Any) -> Iterator[None]:
    """Train on batches, one at a time."""
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
