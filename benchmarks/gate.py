"""What the gates share: a ratio with its limit, and a net with images to train it on."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import selective_backprop as sb
from selective_backprop_lab.bench.rounds import Median, summarise, take_rounds
from selective_backprop_lab.nets.small import resnet9

BATCH = 128
RATE = 1 / 3
WINDOW = round(BATCH / RATE)
CHANNELS_LAST = torch.channels_last
KNOWN = 0.01  # half-width of the 95 % interval, relative to the ratio, at which measuring may stop
SECONDS = 600.0  # after which measuring stops, however wide the interval is
FEWEST = 16  # rounds before an interval is trusted


@dataclass(frozen=True)
class Ratio(Median):
    """A median ratio of seconds over rounds, with its 95 % interval.

    Attributes:
        seconds: median seconds of each arm in a round.
    """

    seconds: Mapping[str, float]


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


def measure(
    arms: Mapping[str, Callable[[], object]],
    ratio: Callable[[Mapping[str, float]], float],
    *,
    tell: Callable[[Ratio], None],
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.process_time,
) -> Ratio:
    """Time arms in interleaved rounds, until their ratio is known well enough.

    Args:
        arms: what to time, by name.
        ratio: returns the ratio of a round, given its arms' seconds.
        tell: called with the ratio known so far after each round, from the sixteenth on.
        seconds: wall seconds after which to stop in any case.
        clock: returns seconds; by default this process's CPU seconds.
    """

    def timed(arm: Callable[[], object]) -> float:
        start = clock()
        arm()
        return clock() - start

    rounds: list[dict[str, float]] = []
    endless = take_rounds({name: partial(timed, arm) for name, arm in arms.items()})
    begun = time.perf_counter()
    while True:
        rounds.append(next(endless))
        if len(rounds) >= FEWEST:
            medians = {name: statistics.median(each[name] for each in rounds) for name in arms}
            found = Ratio(**asdict(summarise([ratio(each) for each in rounds])), seconds=medians)
            tell(found)
            if found.within(KNOWN) or time.perf_counter() - begun > seconds:
                return found


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
    """A net, its optimiser and its steps.

    Args:
        width: of the first layer of a ResNet-9.
        make: returns another net.
    """

    def __init__(self, width: int, make: Callable[[], nn.Module] | None = None) -> None:
        torch.manual_seed(0)
        model = resnet9(3, 10, width=width) if make is None else make()
        self.model = model.to(memory_format=CHANNELS_LAST)
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
