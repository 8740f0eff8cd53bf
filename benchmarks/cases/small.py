"""What strategies add where steps are small, beyond the bare loader and the passes.

Every arm trains anew in each round, and its first epoch is not measured. What a strategy adds is
what its batches and losses take, less what the bare loader takes for the examples that it loads,
the bare loss for those trained on, and a plain forward pass with losses for those that are scored.
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

EXAMPLES, CLASSES, WORDS, LENGTH = 4096, 10, 5000, 40
EPOCHS = 2  # measured, after the first
STRATEGIES: dict[str, Callable[[], sb.Strategy]] = {
    "traditional": sb.traditional,
    "random": lambda: sb.random_backprop(1 / 2),
    "selective": lambda: sb.selective_backprop(1 / 2, warmup_epochs=0),
    "stale": lambda: sb.stale_sb(1 / 2, epochs=1 + EPOCHS, schedule=sb.Schedule()),
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
        """What the tables call it."""
        if self.net == "digits":
            return "digits of the demo"
        how = ", read one by one" if self.read else ""
        return f"{self.net}, {self.inputs} features, batches of {self.batch}{how}"

    def model(self) -> nn.Module:
        """Return the net, seeded."""
        torch.manual_seed(0)
        return NETS[self.net](self.inputs)

    def loader(self) -> DataLoader[Any]:
        """Return a loader of examples whose classes a small net can learn in part."""
        if self.net == "digits":
            data, how = datasets.load("digits"), find_recipe("digits").augmentation
            return make_loader(data, batch_size=self.batch, seed=0, augmentation=how)
        generator = torch.Generator().manual_seed(0)
        kind = Read if self.read else TensorDataset
        if self.net == "bag of words":
            words = torch.randint(WORDS, (EXAMPLES, self.inputs), generator=generator)
            return DataLoader(kind(words, words[:, 0] % CLASSES), self.batch, shuffle=True)
        teacher = torch.randn(self.inputs, CLASSES, generator=generator)
        inputs = torch.randn(EXAMPLES, self.inputs, generator=generator)
        noise = torch.randn(EXAMPLES, CLASSES, generator=generator)
        classes = (inputs @ teacher + noise).argmax(1)
        return DataLoader(kind(inputs, classes), self.batch, shuffle=True)


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
    "bag of words": lambda inputs: nn.Sequential(
        nn.EmbeddingBag(WORDS, 32), nn.Linear(32, CLASSES)
    ),
    "97 modules": deep,
    "digits": lambda inputs: find_recipe("digits").make_model(datasets.load("digits"), seed=0),
}
WORKLOADS = [
    *(
        Workload(net, inputs, batch)
        for net in ("linear", "perceptron")
        for inputs in (20, 784)
        for batch in (32, 128)
    ),
    Workload("bag of words", LENGTH, 32),
    Workload("97 modules", 20, 32),
    Workload("linear", 20, 32, read=True),
    Workload("perceptron", 784, 128, read=True),
    Workload("digits", 0, 64),
]


@dataclass
class Spent:
    """CPU seconds and counts of the measured epochs of one training."""

    next: float = 0.0  # that taking batches took
    loss: float = 0.0  # that the loss took
    passes: float = 0.0  # that everything else of a step took
    forward: float = 0.0  # of plain forward passes with one loss per row, in the bare arm
    batches: int = 0  # of training
    trained: int = 0  # examples in them
    loaded: int = 0
    scored: int = 0
    candidates: int = 0

    @property
    def per_example(self) -> float:
        """Seconds of all of the training for each example that is trained on."""
        return (self.next + self.loss + self.passes) / self.trained


Found = Mapping[str, Spent]


@case("src/selective_backprop/_loader", "src/selective_backprop/_pipeline")
def small(*, workload: str = "") -> Iterator[Rounds]:
    """What strategies add where steps are small, of the workloads whose names begin so."""
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
        for other in ("bare", "traditional"):
            ratio = partial(_per_example, arm, other)
            yield Quantity(f"example, in {other}'s", ratio, about=about)


def added(arm: str, batch: int, found: Found) -> float:
    """Return what a strategy adds, in microseconds per candidate batch."""
    spent, bare = found[arm], found["bare"]
    passes = (
        bare.next * spent.loaded / bare.loaded
        + bare.loss * spent.trained / bare.trained
        + bare.forward * spent.scored / bare.trained
    )
    return 1e6 * (spent.next + spent.loss - passes) / (spent.candidates / batch)


def _per_example(arm: str, other: str, found: Found) -> float:
    return found[arm].per_example / found[other].per_example


def train(workload: Workload, arm: str) -> Spent:
    """Train one arm anew, and return what its measured epochs took."""
    model, loader = workload.model(), workload.loader()
    batches: Any = loader
    loss_fn: Any = nn.CrossEntropyLoss()
    if arm != "bare":
        batches = sb.SelectiveLoader(
            loader, model, loss_fn, STRATEGIES[arm](), epochs=1 + EPOCHS, quiet=True
        )
        loss_fn = batches.loss_fn
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch(batches, model, loss_fn, optimizer, Spent())
    before, spent = None if arm == "bare" else batches.stats, Spent()
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
    """Train one epoch; add what it took."""
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
    spent.next += clock() - begun  # what the end of the epoch takes


def forward_seconds(loader: DataLoader[Any], model: nn.Module) -> float:
    """Return what plain forward passes take, as many as the measured epochs have batches."""
    inputs, targets = next(iter(loader))
    mode = model.training
    model.eval()
    begun = time.process_time()
    with torch.no_grad():
        for _ in range(len(loader)):
            nn.functional.cross_entropy(model(inputs), targets, reduction="none")
    spent = time.process_time() - begun
    model.train(mode)
    return spent * EPOCHS
