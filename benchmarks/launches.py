"""Count host waits and kernels of a steady batch on a CUDA device that is made up.

`python -m benchmarks.launches` prints them as JSON, by strategy. It needs a process of its own: the
device must be there before torch is imported.
"""

import made_up_cuda  # first  # isort: skip

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

EXAMPLES, BATCH, EPOCHS, STEADY = 256, 16, 4, 4
DOCUMENTS, LENGTH, WORDS = 64, 12, 20
RATE = 1 / 3
WINDOW = 3 * BATCH


class Counts(NamedTuple):
    """What one batch of training takes: host waits, and kernels."""

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


def examples(size: int = BATCH) -> DataLoader[Any]:
    """Return a loader of examples in pinned memory."""
    inputs = torch.randn(EXAMPLES, 6, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(inputs, inputs[:, :3].argmax(1))
    order = torch.Generator().manual_seed(2)
    return DataLoader(data, size, shuffle=True, drop_last=True, pin_memory=True, generator=order)


def steps_of(model: nn.Module, batches: Iterable[Any], loss_fn: Any) -> Iterator[None]:
    """Train on batches, one at a time."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
        yield


def remembering() -> sb.Strategy:
    """Return a strategy whose history is full by the last epoch."""
    return sb.selective_backprop(RATE, history=EXAMPLES)


def every_other_epoch() -> sb.Strategy:
    """Return a strategy that scores in the last epoch."""
    return sb.stale_sb(RATE, epochs=2, history=EXAMPLES)


def plain() -> Counts:
    """Count what the bare loop takes."""
    torch.manual_seed(0)
    pairs = ([part.cuda(non_blocking=True) for part in batch] for batch in examples())
    return steady(steps_of(Net().cuda(), pairs, nn.CrossEntropyLoss()))


def through_loader(make: Callable[[], sb.Strategy], *, rows: int = BATCH, **options: Any) -> Counts:
    """Count what a strategy takes in its last epoch, if it scores so many rows at once."""
    torch.manual_seed(0)
    model = Net().cuda()
    seeded = torch.Generator().manual_seed(3)
    door = sb.SelectiveLoader(
        examples(rows),
        model,
        nn.CrossEntropyLoss(),
        make(),
        batch_size=BATCH,
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


def tokens(*, rows_only: bool) -> Counts:
    """Count what a step on tokens takes that a ledger remembers and that are chosen beforehand."""
    body, last, head = nn.Embedding(WORDS, 8), nn.Linear(8, 8), nn.Linear(8, WORDS)
    for module in (body, last, head):
        module.cuda()
    ledger, token_loss = (
        sb.TokenLedger(DOCUMENTS, LENGTH),
        sb.TokenLoss(head, sb.TokenSelection(RATE)),
    )
    words = torch.randint(WORDS, (DOCUMENTS, LENGTH), generator=torch.Generator().manual_seed(1))

    def steps() -> Iterator[None]:
        for rows in torch.arange(DOCUMENTS).split(8):
            documents, labels = rows.pin_memory(), words[rows].pin_memory()
            documents, labels = (each.cuda(non_blocking=True) for each in (documents, labels))
            kept = token_loss.choose(labels, ledger.recall(documents, LENGTH))
            hidden = body(labels)
            if rows_only:
                with sb.rows_only(kept, last):
                    hidden = hidden + last(hidden)
            selected = token_loss(hidden, labels, kept=kept)
            selected.loss.backward()
            ledger.file(documents, selected.losses)
            yield

    return steady(steps())


ARMS: dict[str, Callable[[], Counts]] = {
    "plain loop": plain,
    "traditional": lambda: through_loader(sb.traditional),
    "random_backprop": lambda: through_loader(lambda: sb.random_backprop(RATE)),
    "auto": lambda: through_loader(sb.auto),
    "infobatch": lambda: through_loader(sb.infobatch),
    "easy_skip": lambda: through_loader(sb.easy_skip),
    "recorded_sb": lambda: through_loader(lambda: sb.recorded_sb(RATE)),
    "selective_backprop": lambda: through_loader(remembering),
    "selective_backprop, window at once": lambda: through_loader(remembering, rows=WINDOW),
    "stale_sb, scored": lambda: through_loader(every_other_epoch),
    "stale_sb, scored, window at once": lambda: through_loader(every_other_epoch, rows=WINDOW),
    "kath18": lambda: through_loader(sb.kath18),
    "drop_zero": lambda: through_loader(sb.drop_zero),
    'selective_backprop, nonfinite="skip"': lambda: through_loader(remembering, nonfinite="skip"),
    "SelectiveStep, random_backprop": lambda: step(sb.random_backprop(RATE)),
    "TokenLedger, kept=": lambda: tokens(rows_only=False),
    "TokenLedger, rows_only": lambda: tokens(rows_only=True),
}

if __name__ == "__main__":
    print(json.dumps({name: count() for name, count in ARMS.items()}))
