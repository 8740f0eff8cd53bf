"""What strategies add where steps are small, beyond the bare loader and the passes.

Every arm trains anew in each round, and its first epoch is not measured. To compute what a strategy
adds, take the time of its batches and losses. Subtract what the bare loader takes for the examples
that the strategy loads, the bare loss for those that it trains on, and a plain forward pass with
losses for those that it scores.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from benchmarks.case import Quantity, Rounds, case
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.recipe import find_recipe

EXAMPLES, CLASSES = 4096, 10
EPOCHS = 2  # measured, after the first
STRATEGIES: dict[str, Callable[[], sb.Strategy]] = {
    "random": lambda: sb.random_backprop(1 / 2),
    "selective": lambda: sb.selective_backprop(1 / 2, warmup_epochs=0),
    "recorded": lambda: sb.recorded_sb(1 / 2),
    "auto": sb.auto,
}


class Read(TensorDataset):
    """Examples that are read one by one, as those of most data sets are."""


@dataclass(frozen=True)
class Workload:
    """A small net, its data and its batches."""

    net: str
    inputs: int  # features of an example
    batch: int
    read: bool = False  # one by one; else rows of tensors in memory

    @property
    def name(self) -> str:
        if self.net == "digits":
            return "digits of the demo"
        how = ", read one by one" if self.read else ""
        return f"{self.net}, {self.inputs} features, batches of {self.batch}{how}"

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return NETS[self.net](self.inputs)

    def loader(self, **options: Any) -> DataLoader[Any]:
        """Return a loader of examples whose classes a small net can learn in part."""
        if self.net == "digits":
            data, how = datasets.load("digits"), find_recipe("digits").augmentation
            return make_loader(data, batch_size=self.batch, seed=0, augmentation=how)
        generator = torch.Generator().manual_seed(0)
        teacher = torch.randn(self.inputs, CLASSES, generator=generator)
        inputs = torch.randn(EXAMPLES, self.inputs, generator=generator)
        noise = torch.randn(EXAMPLES, CLASSES, generator=generator)
        data = (Read if self.read else TensorDataset)(inputs, (inputs @ teacher + noise).argmax(1))
        return DataLoader(data, self.batch, shuffle=True, **options)


def deep(inputs: int) -> nn.Module:
    """Return a narrow net of 97 modules, in eval mode as a net that is fine-tuned may be."""
    layers: list[nn.Module] = []
    for before, after in pairwise([inputs, *[16] * 32]):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers).eval()


NETS: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda inputs: nn.Linear(inputs, CLASSES),
    "perceptron": lambda inputs: nn.Sequential(
        nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    ),
    "97 modules": deep,
    "digits": lambda inputs: find_recipe("digits").make_model(datasets.load("digits"), seed=0),
}
PERCEPTRON = Workload("perceptron", 784, 128)
WORKLOADS = (
    *(Workload("linear", 20, 32), Workload("perceptron", 784, 32), PERCEPTRON),
    *(Workload("97 modules", 20, 32), Workload("linear", 20, 32, read=True)),
    *(Workload("perceptron", 784, 128, read=True), Workload("digits", 0, 64)),
)


@dataclass
class Spent:
    """Seconds and counts of the measured epochs of one training."""

    next: float = 0.0  # for taking batches
    loss: float = 0.0
    passes: float = 0.0  # for the rest of a step
    forward: float = 0.0  # for plain forward passes with one loss per row, in the bare arm
    batches: int = 0  # that were trained on
    trained: int = 0  # examples in them
    loaded: int = 0
    scored: int = 0
    candidates: int = 0

    @property
    def per_example(self) -> float:
        """Seconds of the whole training for each example that is trained on."""
        return (self.next + self.loss + self.passes) / self.trained


Found = Mapping[str, Spent]


@case("src/selective_backprop/_loader", "src/selective_backprop/_pipeline")
def small(*, workload: str = "") -> Iterator[Rounds]:
    """What strategies add where steps are small, in workloads whose names begin with `workload`."""
    for each in WORKLOADS:
        if each.name.startswith(workload):
            arms = {arm: partial(train, each, arm) for arm in ("bare", *STRATEGIES)}
            yield Rounds(arms, [*_quantities(each.batch)], {"workload": each.name}, known=False)


def _quantities(batch: int) -> Iterator[Quantity]:
    unit = "microseconds per batch"
    yield Quantity("bare batch", lambda f: 1e6 * f["bare"].next / f["bare"].batches, unit)
    for arm in STRATEGIES:
        about = {"strategy": arm}
        yield Quantity("added", partial(added, arm, batch), unit, about=about)
        ratio = partial(lambda arm, f: f[arm].per_example / f["bare"].per_example, arm)
        yield Quantity("example, in bare's", ratio, about=about)


def added(arm: str, batch: int, found: Found) -> float:
    """Return what a strategy adds, in microseconds per candidate batch."""
    spent, bare = found[arm], found["bare"]
    passes = (
        bare.next * spent.loaded / bare.loaded
        + bare.loss * spent.trained / bare.trained
        + bare.forward * spent.scored / bare.trained
    )
    return 1e6 * (spent.next + spent.loss - passes) / (spent.candidates / batch)


def train(workload: Workload, arm: str) -> Spent:
    """Train one arm anew, and return what its measured epochs took."""
    model, loader = workload.model(), workload.loader()
    batches: Any = loader
    loss_fn: Any = nn.CrossEntropyLoss()
    if arm != "bare":
        strategy = STRATEGIES[arm]()
        batches = sb.SelectiveLoader(
            loader, model, loss_fn, strategy, epochs=1 + EPOCHS, quiet=True
        )
        loss_fn = batches.loss_fn
    optimizer, spent = torch.optim.SGD(model.parameters(), lr=0.1), Spent()
    epoch(batches, model, loss_fn, optimizer, Spent())
    before = None if arm == "bare" else batches.stats
    for _ in range(EPOCHS):
        epoch(batches, model, loss_fn, optimizer, spent)
    if before is None:
        spent.loaded = spent.candidates = spent.trained
        spent.forward = forward_seconds(loader, model)
    else:
        counts = batches.stats.since(before)
        spent.loaded, spent.candidates = counts.loaded, counts.candidates
        spent.scored = counts.scored
    return spent


def epoch(
    batches: Any, model: nn.Module, loss_fn: Any, optimizer: torch.optim.Optimizer, spent: Spent
) -> None:
    """Train one epoch, and add what it took to `spent`."""
    clock = time.process_time
    begun = clock()
    for inputs, targets in batches:
        loaded = clock()
        optimizer.zero_grad()
        outputs = model(inputs)
        computed = clock()
        loss = loss_fn(outputs, targets)
        weighed = clock()
        loss.backward()
        optimizer.step()
        ended = clock()
        spent.next += loaded - begun
        spent.loss += weighed - computed
        spent.passes += (computed - loaded) + (ended - weighed)
        spent.batches += 1
        spent.trained += len(targets)
        begun = ended
    spent.next += clock() - begun  # the end of the epoch


@torch.no_grad()
def forward_seconds(loader: DataLoader[Any], model: nn.Module) -> float:
    """Return the seconds of as many plain forward passes as the measured epochs have batches."""
    inputs, targets = next(iter(loader))
    mode = model.training
    model.eval()
    begun = time.process_time()
    for _ in range(EPOCHS * len(loader)):
        nn.functional.cross_entropy(model(inputs), targets, reduction="none")
    spent = time.process_time() - begun
    model.train(mode)
    return spent
