"""Measure what selection costs where steps are small, beyond the bare loader and the passes.

    scripts/bench --only small                        this version
    python benchmarks/small.py --before OTHER/src     and another one, in the same rounds

Process CPU time, one thread. Every arm trains anew in each round, arms and versions interleaved, in
one process per version. The first epoch is not measured. What a strategy adds is what its batches
and losses take, less what the bare loader takes for the examples that it loads, the bare loss for
those trained on, and a plain forward pass with losses for those that are scored.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from recording import write_record
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from selective_backprop_lab.bench.rounds import Median, summarise
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.nets.models import make_model
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
ARMS = ("bare", *STRATEGIES)


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
        how = ", read one by one" if self.read else ""
        return f"{self.net}, {self.inputs} features, batches of {self.batch}{how}"

    def model(self) -> nn.Module:
        """Return the net, seeded."""
        torch.manual_seed(0)
        return NETS[self.net](self.inputs)

    def loader(self) -> DataLoader[Any]:
        """Return a loader of examples whose classes a small net can learn in part."""
        return DataLoader(self._data(), self.batch, shuffle=True)

    def _data(self) -> TensorDataset:
        generator = torch.Generator().manual_seed(0)
        kind = Read if self.read else TensorDataset
        if self.net == "bag of words":
            words = torch.randint(WORDS, (EXAMPLES, self.inputs), generator=generator)
            return kind(words, words[:, 0] % CLASSES)
        teacher = torch.randn(self.inputs, CLASSES, generator=generator)
        inputs = torch.randn(EXAMPLES, self.inputs, generator=generator)
        noise = torch.randn(EXAMPLES, CLASSES, generator=generator)
        return kind(inputs, (inputs @ teacher + noise).argmax(1))


class Demo(Workload):
    """What scripts/demo trains: the lab's convolutional net on handwritten digits."""

    @property
    def name(self) -> str:
        """What the tables call it."""
        return "digits of the demo"

    def model(self) -> nn.Module:
        """Return the net, seeded."""
        return make_model(find_recipe("digits").model, datasets.load("digits"), seed=0)

    def loader(self) -> DataLoader[Any]:
        """Return the lab's loader, which augments."""
        augmentation = find_recipe("digits").augmentation
        data = datasets.load("digits")
        return make_loader(data, batch_size=self.batch, seed=0, augmentation=augmentation)


def deep(inputs: int) -> nn.Module:
    """Return a narrow net of 97 modules, in eval mode as a net that is fine-tuned may be."""
    widths = [inputs, *[16] * 32]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers).eval()


class BagOfWords(nn.Module):
    """The mean of the words' embeddings, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(WORDS, 32), nn.Linear(32, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        """Return logits, `[text, class]`."""
        return self.head(self.words(words))


NETS: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda inputs: nn.Linear(inputs, CLASSES),
    "perceptron": lambda inputs: nn.Sequential(
        nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    ),
    "bag of words": lambda inputs: BagOfWords(),
    "97 modules": deep,
}
WORKLOADS = {
    each.name: each
    for each in (
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
        Demo("digits", 0, 64),
    )
}


@dataclass
class Spent:
    """CPU seconds and counts of the measured epochs of one training.

    Attributes:
        next: seconds that taking batches took.
        loss: seconds that the loss took.
        passes: seconds of everything else that a step takes.
        forward: seconds of a plain forward pass over a batch with one loss per row, in the bare
            arm.
        batches: training batches.
        trained: examples in them.
        loaded: examples that were loaded.
        scored: examples that were scored.
        candidates: examples that came up.
    """

    next: float = 0.0
    loss: float = 0.0
    passes: float = 0.0
    forward: float = 0.0
    batches: int = 0
    trained: int = 0
    loaded: int = 0
    scored: int = 0
    candidates: int = 0


def train(workload: Workload, arm: str) -> Spent:
    """Train one arm anew, and return what its measured epochs took."""
    model, plain = workload.model(), nn.CrossEntropyLoss()
    loader: Any = workload.loader()
    loss_fn: Any = plain
    if arm != "bare":
        loader = sb.SelectiveLoader(
            loader, model, plain, STRATEGIES[arm](), epochs=1 + EPOCHS, quiet=True
        )
        loss_fn = loader.loss_fn
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch(loader, model, loss_fn, optimizer)
    before = loader.stats if arm != "bare" else None
    spent = Spent()
    for _ in range(EPOCHS):
        epoch(loader, model, loss_fn, optimizer, spent)
    if before is None:
        spent.loaded = spent.candidates = spent.trained
        spent.forward = forward_seconds(loader, model)
    else:
        counts = loader.stats.since(before)
        spent.loaded, spent.candidates = counts.loaded, counts.candidates
        spent.scored = counts.scored
    return spent


def epoch(
    loader: Any,
    model: nn.Module,
    loss_fn: Any,
    optimizer: torch.optim.Optimizer,
    spent: Spent | None = None,
) -> None:
    """Train one epoch; add what it took."""
    spent = Spent() if spent is None else spent
    clock = time.process_time
    begun = clock()
    for inputs, targets in loader:
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


def beyond(spent: Spent, bare: Spent, batch: int) -> float:
    """Return what a strategy adds, in microseconds per candidate batch."""
    passes = (
        bare.next * spent.loaded / bare.loaded
        + bare.loss * spent.trained / bare.trained
        + bare.forward * spent.scored / bare.trained
    )
    return 1e6 * (spent.next + spent.loss - passes) / (spent.candidates / batch)


def example_seconds(spent: Spent) -> float:
    """Return what all of the training takes for each example that is trained on."""
    return (spent.next + spent.loss + spent.passes) / spent.trained


class Worker:
    """A process that trains with one version of the package."""

    def __init__(self, source: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def train(self, workload: str, arm: str) -> Spent:
        """Return what an arm took in that process."""
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None and answers is not None
        pipe.write(json.dumps([workload, arm]) + "\n")
        pipe.flush()
        return Spent(**json.loads(answers.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def work() -> None:
    """Train what is asked for on standard input, a line each."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        workload, arm = json.loads(line)
        print(json.dumps(asdict(train(WORKLOADS[workload], arm))), flush=True)


def rounds_of(
    workload: str, workers: dict[str, Worker], count: int
) -> Iterator[dict[str, dict[str, Spent]]]:
    """Yield what each arm of each version took, round by round, in an order of its own each."""
    order = [(version, arm) for version in workers for arm in ARMS]
    shuffle = random.Random(0).shuffle
    for number in range(count + 1):
        shuffle(order)
        found: dict[str, dict[str, Spent]] = {version: {} for version in workers}
        for version, arm in order:
            found[version][arm] = workers[version].train(workload, arm)
        if number:  # the first fills caches
            yield found


def measure(workload: str, workers: dict[str, Worker], count: int) -> list[dict[str, Any]]:
    """Return what each strategy adds on a workload, in each version."""
    batch = WORKLOADS[workload].batch
    rounds = list(rounds_of(workload, workers, count))
    entries = []
    for version in workers:
        for arm in STRATEGIES:
            found = [each[version] for each in rounds]
            added = summarise([beyond(each[arm], each["bare"], batch) for each in found])
            ratios = {
                other: asdict(
                    summarise(
                        [
                            example_seconds(each[arm]) / example_seconds(each[other])
                            for each in found
                        ]
                    )
                )
                for other in ("bare", "traditional")
            }
            entries.append(
                {
                    "workload": workload,
                    "version": version,
                    "strategy": arm,
                    "added_us": asdict(added),
                    "per_example_against": ratios,
                    "share_trained": statistics.median(
                        each[arm].trained / each[arm].candidates for each in found
                    ),
                    "bare_next_us": 1e6
                    * statistics.median(e["bare"].next / e["bare"].batches for e in found),
                }
            )
    return entries


def show(console: Console, entries: Sequence[dict[str, Any]]) -> None:
    """Print the figures of a workload."""
    table = Table("version", "strategy", "added, us", "95 % interval", "x bare", "x trad", box=None)
    for each in entries:
        added = Median(**each["added_us"])
        ratios = [
            f"{each['per_example_against'][n]['median']:.3f}" for n in ("bare", "traditional")
        ]
        numbers = f"{added.median:.0f}", f"{added.low:.0f} to {added.high:.0f}", *ratios
        table.add_row(each["version"], each["strategy"], *numbers)
    console.print(f"{entries[0]['workload']} (bare next: {entries[0]['bare_next_us']:.0f} us)")
    console.print(table)


def report(
    *,
    out: Path | None,
    only: Sequence[str] = ("",),
    rounds: int = 15,
    before: Path | None = None,
) -> int:
    """Measure every workload, print tables, write a record."""
    console = Console()
    sources = {"after": Path(__file__).parent.parent / "src"}
    if before:
        sources = {"before": before} | sources
    workers = {version: Worker(source) for version, source in sources.items()}
    names = [name for name in WORKLOADS if name.startswith(tuple(only))]
    entries = []
    for name in track(names, console=console, transient=True):
        found = measure(name, workers, rounds)
        show(console, found)
        entries += found
    for worker in workers.values():
        worker.close()
    if out:
        write_record(
            out,
            clock="process CPU time, one thread, interleaved rounds",
            examples=EXAMPLES,
            epochs=EPOCHS,
            workloads=entries,
        )
    return 0


def main() -> int:
    """Measure, or work for who measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="workloads whose names begin so")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--before", type=Path, help="src folder of another version, beside this")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return 0
    chosen = {"only": options.only, "rounds": options.rounds, "before": options.before}
    return report(out=options.out, **chosen)


if __name__ == "__main__":
    sys.exit(main())
