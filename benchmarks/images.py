"""What the gates train: images in memory, whose loading costs next to nothing, and a net."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import selective_backprop as sb
from benchmarks.case import Quantity, Rounds, Row
from selective_backprop_lab.nets.small import resnet9

BATCH, RATE = 128, 1 / 3
WINDOW = round(BATCH / RATE)
NET = {"net": "resnet9, width 16", "batch_size": BATCH}
Batch = tuple[Tensor, Tensor]


class Images(Dataset[Batch]):
    """Images that are handed out in order, so that a batch is a view."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(count, 3, 32, 32, generator=generator)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(10, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> Batch:
        start = indices[0]
        return self.images[start : start + len(indices)], self.labels[start : start + len(indices)]

    def batches(self, count: int) -> list[Batch]:
        """Return the first examples in batches."""
        return [
            self.__getitems__(list(range(start, start + BATCH))) for start in range(0, count, BATCH)
        ]


class Shuffled(Images):
    """Images that are gathered in any order; as many examples as asked for share 4,096 of them."""

    def __init__(self, examples: int) -> None:
        super().__init__(min(examples, 4096))
        self._examples = examples

    def __len__(self) -> int:
        return self._examples

    def __getitems__(self, indices: list[int]) -> Batch:
        rows = torch.tensor(indices) % len(self.labels)
        return self.images.index_select(0, rows), self.labels.index_select(0, rows)


def loader_of(images: Images, **options: Any) -> DataLoader[Batch]:
    """Return a loader, which shuffles what can be shuffled."""
    if "batch_sampler" not in options:
        options = {"batch_size": BATCH, "shuffle": isinstance(images, Shuffled)} | options
    return DataLoader(images, collate_fn=_as_it_is, **options)


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
        """Take one ordinary training step."""
        self.optimizer.zero_grad()
        self.loss_fn(self.model(inputs), targets).backward()
        self.optimizer.step()

    def epoch(self, loader: Iterable[Batch], count: int = 1) -> None:
        """Take a step on each batch of a loader, as often as asked for."""
        for _ in range(count):
            for inputs, targets in loader:
                self.step(inputs, targets)

    def score(self, batches: Iterable[Batch]) -> None:
        """Run an eval forward over some batches and take their losses."""
        self.model.eval()
        with torch.no_grad():
            for inputs, targets in batches:
                nn.functional.cross_entropy(self.model(inputs), targets, reduction="none")
        self.model.train()

    def selecting(
        self, loader: DataLoader[Batch], strategy: sb.Strategy, **options: Any
    ) -> sb.SelectiveLoader:
        """Return a loader that selects for this net."""
        return sb.SelectiveLoader(loader, self.model, self.loss_fn, strategy, quiet=True, **options)


def forever(loader: Iterable[Any]) -> Iterator[Any]:
    """Yield a loader's batches, epoch after epoch."""
    while True:
        yield from loader


def gate(
    name: str,
    claim: str,
    limit: float,
    over: str,
    under: str,
    *,
    scale: float = 1.0,
    about: Row = NET,
    **arms: Callable[[], None],
) -> Rounds:
    """Return arms and a ratio of them, which is claimed not to exceed a limit.

    It is that of the arm `over` to the sum of the arms that `under` joins by `+`, times `scale`
    where arms do the work more than once.
    """

    def ratio(spent: Mapping[str, float]) -> float:
        return scale * spent[over] / sum(spent[each] for each in under.split("+"))

    return Rounds(arms, [Quantity(name, ratio, limit=limit)], {**about, "claim": claim})
