"""What the gates share: a ratio with its limit, and a net with images to train it on."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import selective_backprop as sb
from selective_backprop.guide._rounds import Ratio
from selective_backprop.lab.nets.small import resnet9

BATCH = 128
RATE = 1 / 3
WINDOW = round(BATCH / RATE)
CHANNELS_LAST = torch.channels_last


@dataclass(frozen=True)
class Gate:
    """A ratio and the most it may be.

    Attributes:
        name: what `--only` finds it by.
        claim: what it says in words.
        limit: the most that the ratio may be.
        arms: what is timed.
        ratio: how the ratio is taken.
    """

    name: str
    claim: str
    limit: float
    arms: Mapping[str, Callable[[], object]]
    ratio: Callable[[Mapping[str, float]], float]

    def verdict(self, found: Ratio) -> str:
        """Return "pass", "fail" or "unresolved"."""
        if found.high <= self.limit:
            return "pass"
        return "fail" if found.low > self.limit else "unresolved"


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Images in memory, handed out a batch at a time, so that loading costs next to nothing."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(count, 3, 32, 32, generator=generator)
        self.images = images.contiguous(memory_format=CHANNELS_LAST)
        self.labels = torch.randint(10, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        start = indices[0]  # sampled in order, so that a batch is a view
        return self.images[start : start + len(indices)], self.labels[start : start + len(indices)]


class Shuffled(Images):
    """Images in memory that are gathered in any order; as many examples as asked for share them.

    Args:
        examples: how many the data set has.
        images: how many of them differ.
    """

    def __init__(self, examples: int, images: int = 4096) -> None:
        super().__init__(min(examples, images))
        self._examples = examples

    def __len__(self) -> int:
        return self._examples

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        rows = torch.tensor(indices) % len(self.labels)
        return self.images.index_select(0, rows), self.labels.index_select(0, rows)


def collate(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return what the data set made."""
    return batch


def shuffled_loader(images: Shuffled) -> DataLoader[tuple[Tensor, Tensor]]:
    """Return a loader that shuffles."""
    return DataLoader(images, BATCH, shuffle=True, collate_fn=collate)


class Training:
    """A net, its optimiser and its steps."""

    def __init__(self, width: int) -> None:
        torch.manual_seed(0)
        self.model = resnet9(3, 10, width=width).to(memory_format=CHANNELS_LAST)
        self.loss_fn = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Take one ordinary training step."""
        self.optimizer.zero_grad()
        self.loss_fn(self.model(inputs), targets).backward()
        self.optimizer.step()

    def score(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        """Run an eval forward over some batches and take their losses."""
        self.model.eval()
        with torch.no_grad():
            for inputs, targets in batches:
                nn.functional.cross_entropy(self.model(inputs), targets, reduction="none")
        self.model.train()

    def door(
        self, loader: DataLoader[tuple[Tensor, Tensor]], strategy: sb.Strategy
    ) -> sb.SelectiveLoader:
        """Return a loader that selects for this net."""
        return sb.SelectiveLoader(loader, self.model, self.loss_fn, strategy, quiet=True)

    def epoch(self, loader: object) -> None:
        """Take a step on each batch of a loader."""
        for inputs, targets in loader:  # ty: ignore[not-iterable]
            self.step(inputs, targets)


def forever(loader: sb.SelectiveLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a loader's batches, epoch after epoch."""
    while True:
        yield from loader
