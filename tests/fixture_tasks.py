"""Real data of several kinds, and training in which every selection is watched."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import reference
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import selective_backprop as sb

BATCH, WINDOW = 32, 64
TOP = sb.Strategy("top", sb.scorers.Forward(), sb.selectors.Top(rate=BATCH / WINDOW))
TRAINED = 1400  # of scikit-learn's 1797 digits; the others are for tests

Plain = Callable[[list[Any], list[Any]], float]  # one example's loss, from its output and target
Outputs = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]


def digits() -> tuple[Tensor, Tensor]:
    """Images `[1797, 1, 8, 8]` in [0, 1], and class numbers."""
    images, labels = datasets.load_digits(return_X_y=True)
    return torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)


def pair(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    inputs, targets = batch
    return model(inputs), targets


@dataclass
class Task:
    """What is trained, and how one example's loss is reckoned by hand.

    Attributes:
        data: the training set.
        model: is trained.
        loss_fn: as it is given to the doors.
        plain: one example's loss from lists of numbers.
        outputs: what the model makes of a batch; a pair `(inputs, targets)` by default.
        options: further ones of the doors.
        collate: of the loader.
    """

    data: Dataset[Any]
    model: nn.Module
    loss_fn: Any
    plain: Plain
    outputs: Outputs = pair
    options: dict[str, Any] | None = None
    collate: Callable[..., Any] | None = None

    def hardest(self, batch: Any) -> list[int]:
        """The half of a batch's rows that have the highest losses, reckoned one by one."""
        training = self.model.training
        self.model.eval()
        with torch.no_grad():
            outputs, targets = self.outputs(self.model, batch)
        self.model.train(training)
        examples = zip(outputs.tolist(), targets.tolist(), strict=True)
        losses = [self.plain(output, target) for output, target in examples]
        return reference.top(losses, BATCH)


def train_with_loader(task: Task, epochs: int, watched: int = 3, rate: float = 0.03) -> sb.Stats:
    """Train by the hardest half of each window; the first selections are reckoned by hand."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(task.data), generator=generator).tolist()  # ty: ignore
    loader = DataLoader(
        task.data,
        WINDOW,
        sampler=order,
        drop_last=True,
        collate_fn=task.collate,
    )
    door = sb.SelectiveLoader(
        loader,
        task.model,
        task.loss_fn,
        TOP,
        batch_size=BATCH,
        with_selection=True,
        **(task.options or {}),
    )
    candidates = iter(loader)
    optimizer = torch.optim.Adam(task.model.parameters(), rate)
    for epoch in range(epochs):
        for step, (batch, selection) in enumerate(door):
            if not epoch and step < watched:
                rows = task.hardest(next(candidates))
                window = order[step * WINDOW : (step + 1) * WINDOW]
                assert selection.indices.tolist() == [window[row] for row in rows]
            optimizer.zero_grad()
            outputs, targets = task.outputs(task.model, batch)
            task.loss_fn(outputs, targets).backward()
            optimizer.step()
    return door.stats


def train_with_step(task: Task, steps: int, watched: int = 3, rate: float = 0.03) -> None:
    """The same with `SelectiveStep`, whose loss is the mean over the selected examples."""
    loader = DataLoader(task.data, WINDOW, shuffle=True, drop_last=True, collate_fn=task.collate)
    step = sb.SelectiveStep(task.model, task.loss_fn, TOP, **(task.options or {}))
    optimizer = torch.optim.Adam(task.model.parameters(), rate)
    for number, batch in zip(range(steps), loader, strict=False):
        rows = task.hardest(batch) if number < watched else None
        optimizer.zero_grad()
        selected = step(batch)
        assert rows is None or selected.rows.tolist() == rows
        assert selected.loss.item() == torch.mean(selected.losses).item()
        selected.loss.backward()
        optimizer.step()
