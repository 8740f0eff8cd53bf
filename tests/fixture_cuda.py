"""A training on a CUDA device, and how to see that the host does not wait for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

BATCH, WINDOW, EXAMPLES = 8, 24, 96
EXACT = {
    "percentile": sb.selectors.Percentile(2.0),
    "top": sb.selectors.Top(1 / 3),
    "bottom": sb.selectors.Bottom(1 / 3),
    "uniform": sb.selectors.Uniform(1 / 3),
    "proportional": sb.selectors.Proportional(presample=3.0),
}
LOSS = nn.CrossEntropyLoss()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.LayerNorm(32), nn.GELU())
        self.head = nn.Linear(32, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs))


def net() -> Net:
    torch.manual_seed(0)
    return Net().cuda()


def examples() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(EXAMPLES, 6, generator=generator)
    return TensorDataset(inputs, inputs[:, :3].argmax(1))


def by_rule(model: nn.Module, batch: Any) -> Tensor:
    """Scores that depend on the example alone, and are the same on every device."""
    return batch[0][:, 0].double() + 10.0


def make_door(
    model: nn.Module,
    strategy: sb.Strategy,
    *,
    rows: int = WINDOW,
    workers: int = 0,
    **options: Any,
) -> sb.SelectiveLoader:
    loader = DataLoader(
        examples(),
        rows,
        shuffle=True,
        drop_last=True,
        pin_memory=torch.cuda.is_available(),
        num_workers=workers,
        generator=torch.Generator().manual_seed(2),
    )
    defaults = {"batch_size": BATCH, "generator": torch.Generator().manual_seed(3)}
    return sb.SelectiveLoader(loader, model, LOSS, strategy, **(defaults | options))


def scored(
    selector: sb.selectors.AbstractSelector, scorer: sb.scorers.AbstractScorer | None = None
) -> sb.Strategy:
    return sb.Strategy("exact", scorer or sb.scorers.Forward(), selector)


def take_step(
    model: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer, batch: Any
) -> Tensor:
    inputs, targets = batch
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(model: Any, door: sb.SelectiveLoader, epochs: int) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return [take_step(model, optimizer, batch) for _ in range(epochs) for batch in door]


@contextmanager
def no_waiting() -> Iterator[None]:
    """Let every host synchronisation that torch knows of raise."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def train_without_waiting(model: nn.Module, door: sb.SelectiveLoader) -> list[Tensor]:
    """Train for an epoch; the first, which finds things out, and what ends one may wait."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in door:
        take_step(model, optimizer, batch)
    batches, losses = iter(door), []
    losses.append(take_step(model, optimizer, next(batches)))  # an epoch's start may wait, too
    with no_waiting():
        for _ in range(len(door) - 1):
            losses.append(take_step(model, optimizer, next(batches)))
    assert next(batches, None) is None
    return losses
