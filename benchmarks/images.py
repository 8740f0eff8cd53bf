"""What the gates train: images in memory, whose loading costs next to nothing, and a net."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import selective_backprop as sb
from benchmarks.case import Quantity, Rounds
from selective_backprop_lab.nets.small import resnet9

BATCH, RATE = 128, 1 / 3
WINDOW = round(BATCH / RATE)
NET = {"net": "resnet9, width 16", "batch_size": BATCH}
Batch = tuple[Tensor, Tensor]


class Images(Dataset[Batch]):
    """Images, of which 4,096 at most are different. If not shuffled, a batch is a view of them."""

    def __init__(self, count: int, shuffled: bool = False) -> None:
        generator = torch.Generator().manual_seed(0)
        self.count, self.shuffled = count, shuffled
        different = min(count, 4096)
        images = torch.randn(different, 3, 32, 32, generator=generator)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(10, (different,), generator=generator)

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: list[int]) -> Batch:
        if self.shuffled:
            rows = torch.tensor(indices) % len(self.labels)
            return self.images.index_select(0, rows), self.labels.index_select(0, rows)
        part = slice(indices[0], indices[0] + len(indices))
        return self.images[part], self.labels[part]

    def loader(self, **options: Any) -> DataLoader[Batch]:
        if "batch_sampler" not in options:
            options = {"batch_size": BATCH, "shuffle": self.shuffled}
        return DataLoader(self, collate_fn=_as_it_is, **options)


def _as_it_is(batch: Batch) -> Batch:
    return batch


class Net:
    """A net, its optimiser and its steps."""

    def __init__(self, net: nn.Module | None = None) -> None:
        torch.manual_seed(0)
        model = resnet9(3, 10, width=16) if net is None else net
        self.model = model.to(memory_format=torch.channels_last)
        self.loss_fn = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        self.optimizer.zero_grad()
        self.loss_fn(self.model(inputs), targets).backward()
        self.optimizer.step()

    def epoch(self, loader: Iterable[Batch], count: int = 1) -> None:
        for _ in range(count):
            for inputs, targets in loader:
                self.step(inputs, targets)

    @torch.no_grad()
    def score(self, batches: Iterable[Batch]) -> None:
        """Run an eval forward over some batches and take their losses."""
        self.model.eval()
        for inputs, targets in batches:
            nn.functional.cross_entropy(self.model(inputs), targets, reduction="none")
        self.model.train()

    def selecting(
        self, loader: DataLoader[Batch], strategy: sb.Strategy, **options: Any
    ) -> sb.SelectiveLoader:
        return sb.SelectiveLoader(loader, self.model, self.loss_fn, strategy, quiet=True, **options)


def record_all(loader: sb.SelectiveLoader, examples: int) -> None:
    """Record a loss of every example, a million at a time."""
    losses = torch.rand(10**6, generator=torch.Generator().manual_seed(0))
    for rows in torch.arange(examples).split(len(losses)):
        loader.record(sb.Selection(rows, torch.ones(len(rows))), losses[: len(rows)])


def forever(loader: Iterable[Any]) -> Iterator[Any]:
    """Yield a loader's batches, epoch after epoch."""
    while True:
        yield from loader


def gate(
    name: str, claim: str, limit: float, scale: float = 1.0, **arms: Callable[[], None]
) -> Rounds:
    """Return arms, and the claim that their ratio does not exceed a limit.

    The ratio is that of the first arm to the sum of the others, times `scale` if the first does
    its work more than once.
    """

    def ratio(spent: Mapping[str, float]) -> float:
        first, *others = (spent[arm] for arm in arms)
        return scale * first / sum(others)

    return Rounds(arms, [Quantity(name, ratio, limit=limit)], NET | {"claim": claim})
