"""The time that strategies add where steps are small, beyond the bare loader and the passes.

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


@dataclass(frozen=True)
class Spent:
    """Seconds and counts of the measured epochs of one training."""

    seconds: Mapping[str, float]  # of "other", for taking batches, of "loss" and of "passes"
    batches: int  # that were trained on
    trained: int  # examples in them
    loaded: int
    scored: int
    candidates: int

    @property
    def per_example(self) -> float:
        return sum(self.seconds.values()) / self.trained


Found = Mapping[str, Any]  # a Spent of each arm; "forward", seconds of plain forward passes


@case("src/selective_backprop/_loader", "src/selective_backprop/_pipeline")
def small(*, workload: str = "") -> Iterator[Rounds]:
    """The time that strategies add to small steps; `workload` is the beginning of names."""
    for each in WORKLOADS:
        if each.name.startswith(workload):
            arms = {arm: partial(train, each, arm) for arm in ("bare", *STRATEGIES)}
            arms["forward"] = partial(forward_seconds, each)
            yield Rounds(arms, [*_quantities(each.batch)], {"workload": each.name}, known=False)


def _quantities(batch: int) -> Iterator[Quantity]:
    unit = "microseconds per batch"
    yield Quantity(
        "bare batch", lambda f: 1e6 * f["bare"].seconds["other"] / f["bare"].batches, unit
    )
    for arm in STRATEGIES:
        about = {"strategy": arm}
        yield Quantity("added", partial(added, arm, batch), unit, about=about)
        ratio = partial(lambda arm, f: f[arm].per_example / f["bare"].per_example, arm)
        yield Quantity("example, in bare's", ratio, about=about)


def added(arm: str, batch: int, found: Found) -> float:
    """Return the microseconds that a strategy adds per candidate batch."""
    own, bare = found[arm], found["bare"]
    passes = (
        bare.seconds["other"] * own.loaded / bare.loaded
        + bare.seconds["loss"] * own.trained / bare.trained
        + found["forward"] * own.scored / bare.trained
    )
    taken = own.seconds["other"] + own.seconds["loss"]
    return 1e6 * (taken - passes) / (own.candidates / batch)


def train(workload: Workload, arm: str) -> Spent:
    """Train one arm anew."""
    model, batches = workload.model(), workload.loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_fn: Any = nn.CrossEntropyLoss()
    loader = None
    if arm != "bare":
        strategy = STRATEGIES[arm]()
        loader = sb.SelectiveLoader(
            batches, model, loss_fn, strategy, epochs=1 + EPOCHS, quiet=True
        )
        loss_fn = loader.loss_fn
    watch = sb.Stopwatch(clock=time.process_time)
    once = partial(epoch, loader or batches, model, loss_fn, optimizer, watch)
    once()
    watch.go_on({})
    before = loader and loader.stats
    sizes = [size for _ in range(EPOCHS) for size in once()]
    trained = sum(sizes)
    counts = (trained, 0, trained)  # loaded, scored and offered
    if loader is not None:
        seen = loader.stats.since(before)
        counts = seen.loaded, seen.scored, seen.candidates
    return Spent(watch.seconds, len(sizes), trained, *counts)


def epoch(batches: Any, model: nn.Module, loss_fn: Any, optimizer: Any, watch: Any) -> list[int]:
    sizes = []
    watch.start()
    for inputs, targets in batches:
        with watch.phase("passes"):
            optimizer.zero_grad()
            outputs = model(inputs)
        with watch.phase("loss"):
            loss = loss_fn(outputs, targets)
        with watch.phase("passes"):
            loss.backward()
            optimizer.step()
        sizes.append(len(targets))
    watch.stop()
    return sizes


@torch.no_grad()
def forward_seconds(workload: Workload) -> float:
    """Return the seconds of as many plain forward passes as the measured epochs have batches."""
    model, loader = workload.model().eval(), workload.loader()
    inputs, targets = next(iter(loader))
    begun = time.process_time()
    for _ in range(EPOCHS * len(loader)):
        nn.functional.cross_entropy(model(inputs), targets, reduction="none")
    return time.process_time() - begun
