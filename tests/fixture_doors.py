"""Data that knows its own numbers, and what the tests of the door share."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

import selective_backprop as sb


class Numbered(Dataset):
    """Example `i` is `(features that show i, i)`; every reading is counted, in workers too."""

    def __init__(self, examples: int) -> None:
        self.reads = torch.zeros(examples, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return len(self.reads)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.reads[index] += 1
        return torch.tensor([float(index), -float(index)]), int(index)


class NumberedInOneGo(Numbered):
    """The same, fetched a batch at a time."""

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, int]]:
        return [self[index] for index in indices]


class NumberedStream(IterableDataset):
    """The same as a stream, shared out among workers."""

    def __init__(self, examples: int) -> None:
        self.examples = examples

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        worker = torch.utils.data.get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in range(first, self.examples, step):
            yield torch.tensor([float(index), -float(index)]), index


class NotedSampler(Sampler[int]):
    """Shuffles by its own generator, and notes what it handed out, pass by pass."""

    def __init__(self, examples: int, seed: int = 0) -> None:
        self.examples = examples
        self.generator = torch.Generator().manual_seed(seed)
        self.passes: list[list[int]] = []

    def __len__(self) -> int:
        return self.examples

    def __iter__(self) -> Iterator[int]:
        noted: list[int] = []
        self.passes.append(noted)
        for index in torch.randperm(self.examples, generator=self.generator).tolist():
            noted.append(index)
            yield index


class Net(nn.Module):
    """A net with everything that is easily disturbed: batch statistics, dropout, buffers."""

    def __init__(self, inputs: int = 2, classes: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3)
        )
        self.head = nn.Linear(8, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.layers(inputs))


@dataclass(frozen=True)
class Noting(sb.selectors.AbstractSelector):
    """Selects as another selector does, and notes the windows, and how much was not chosen."""

    inner: sb.selectors.AbstractSelector
    windows: list[int] = field(default_factory=list, repr=False)
    unselected: list[int] = field(default_factory=list, repr=False)

    @property
    def terms(self) -> sb.selectors.Terms:
        return self.inner.terms

    def start(self, context: sb.selectors.Context) -> sb.selectors.RunningSelector:
        running = self.inner.start(context)

        def rule(
            scores: Tensor, history: sb.selectors.History, generator: torch.Generator
        ) -> sb.selectors.Choice:
            choice = running.select(scores, history, generator)
            self.windows.append(len(scores))
            self.unselected.append(len(scores) - len(choice.rows))
            return choice

        return sb.selectors.Stateless(rule)


def losses_by_number(model: nn.Module, batch: Any) -> Tensor:
    """Scores that depend on the example alone, all different."""
    return torch.frac((batch[1].double() + 1) * 0.6180339887498949)


def select(loader: DataLoader, strategy: sb.Strategy, **options: Any) -> sb.SelectiveLoader:
    """Wrap a loader of numbered examples; nothing is computed but the scores, all from one seed."""
    defaults = {"generator": torch.Generator().manual_seed(0)}
    if strategy.scorer is not None:
        defaults["losses"] = losses_by_number
    return sb.SelectiveLoader(loader, nn.Identity(), None, strategy, **(defaults | options))


def numbers(batches: Iterable[Any]) -> list[list[int]]:
    """The examples of each batch."""
    return [batch[1].tolist() for batch in batches]


def flat(batches: Iterable[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def selective(rate: float = 1 / 2, **options: Any) -> sb.Strategy:
    """Selective-Backprop without a warm-up."""
    return sb.selective_backprop(rate, **({"warmup_epochs": 0} | options))


def fixture_data(examples: int = 40, seed: int = 0) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(examples, 2, generator=generator)
    return torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())


def fresh_net() -> Net:
    torch.manual_seed(7)
    return Net()


def train(
    batches: Iterable[Any],
    model: nn.Module,
    epochs: int,
    loss_fn: Callable = functional.cross_entropy,
) -> None:
    """The loop of a user, who knows nothing of selection."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()


def same_tensors(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


SCHEDULES = st.builds(
    sb.Schedule,
    warmup_epochs=st.integers(0, 2),
    start=st.sampled_from([0.0, 0.3]),
    end=st.sampled_from([0.75, 1.0]),
    plain_every=st.none() | st.integers(2, 4),
)


def bits(state: Any) -> Any:
    """What a state holds, to the last bit, as something that can be compared."""
    if isinstance(state, Tensor):
        return str(state.dtype), tuple(state.shape), state.numpy(force=True).tobytes()
    if isinstance(state, dict):
        return {key: bits(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [bits(value) for value in state]
    return repr(state)
