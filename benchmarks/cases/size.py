"""What large data sets and endless streams take: memory, and seconds to begin."""

import itertools
import statistics
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import selective_backprop as sb
from benchmarks.case import Once, Row, case, value
from benchmarks.memory import Indices, forget_peak, peak, record_all, resident

BATCH, LOOKS, CLASSES = 16, 20, 10
CORE = ("src/selective_backprop/_loader", "src/selective_backprop/_memory")


class Endless(IterableDataset):
    """Examples that are made up as they are asked for, a batch at a time."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        while True:
            yield torch.randn(BATCH, 8, generator=generator), torch.zeros(BATCH)


@case(*CORE)
def stream(*, batches: int = 10**6) -> Iterator[Once]:
    """The memory of a strategy that selects from a stream without end."""

    def find() -> list[Row]:
        loader = sb.SelectiveLoader(
            DataLoader(Endless(), batch_size=None),
            nn.Identity(),
            None,
            sb.selective_backprop(rate=1 / 4, warmup_epochs=0),
            losses=lambda model, batch: batch[0][:, 0],
            batch_size=BATCH,
        )
        looks: list[int] = []
        for _ in loader:
            if loader.stats.candidates >= BATCH * batches // LOOKS * (len(looks) + 1):
                looks.append(resident())
            if len(looks) == LOOKS:
                break
        # The first looks are of a process that still loads code and warms its allocator up.
        settled = looks[2:]
        half = len(settled) // 2
        grew = max(settled[half:]) - max(settled[:half])
        return [value("growth from the first half to the second", grew, "bytes", 2**20)]

    yield Once({"batches": batches, "rows": BATCH}, find)


@case(*CORE)
def ledger(*, examples: int = 10**8) -> Iterator[Once]:
    """What a ledger takes to open, to file into, to draw from and to save."""

    def find() -> list[Row]:
        before, began = resident(), time.monotonic()
        loader = sb.SelectiveLoader(
            DataLoader(Indices(examples), BATCH),
            None,
            None,
            sb.recorded_sb(1 / 2, schedule=sb.Schedule()),
            with_selection=True,
            generator=torch.Generator().manual_seed(0),
        )
        first = sb.Selection(torch.arange(1000), torch.ones(1000))
        loader.record(first, torch.rand(1000))
        assert loader.ledger is not None
        loader.ledger.count(first.indices)  # opens what counts, too
        opened, taken = time.monotonic() - began, resident() - before
        began = time.monotonic()
        record_all(loader, examples)
        filed = time.monotonic() - began
        began, before = time.monotonic(), resident()
        next(iter(loader))
        started, drawn = time.monotonic() - began, resident() - before
        return [
            value("opening", opened, "seconds", 5.0),
            value("memory", taken / examples, "bytes per example", 8.1),
            value("filing", 1e9 * filed / examples, "nanoseconds per example"),
            value("beginning an epoch", started, "seconds"),
            value("memory while it runs, beyond", drawn / examples, "bytes per example"),
            *saved_and_resumed(loader, examples),
        ]

    yield Once({"examples": examples}, find)


@case("src/selective_backprop")
def start(*, examples: int = 10**6, rounds: int = 5) -> Iterator[Once]:
    """Seconds from building a loader to its first batch, each time in a new process."""
    for name in ("bare loader", "traditional", "selective_backprop", "auto"):
        yield Once(
            {"examples": examples, "strategy": name},
            lambda name=name: [first_batch_of(name, examples, rounds)],
        )


def first_batch_of(name: str, examples: int, rounds: int) -> Row:
    """Return the median of the seconds; what the process imports at its start is left out."""
    seconds = []
    for _ in range(rounds):
        with get_context("spawn").Pool(1) as process:
            seconds.append(process.apply(seconds_to_first_batch, (name, examples)))
    found = value("first batch", statistics.median(seconds), "seconds", 0.5)
    return found | {"low": min(seconds), "high": max(seconds), "rounds": rounds}


def seconds_to_first_batch(name: str, examples: int) -> float:
    """Build what trains on so many examples, and return how long the first batch takes."""
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(examples, 8), torch.arange(examples) % CLASSES)
    model, loader = nn.Linear(8, CLASSES), DataLoader(data, 128, shuffle=True)
    options = {"rate": 1 / 3, "warmup_epochs": 0} if name == "selective_backprop" else {}
    began = time.monotonic()
    if name != "bare loader":
        strategy = getattr(sb, name)(**options)
        loader = sb.SelectiveLoader(loader, model, nn.CrossEntropyLoss(), strategy, quiet=True)
        assert loader.loss_fn  # the loop would call it, and `auto` asks that it was taken
    next(iter(loader))
    return time.monotonic() - began


@case(*CORE, "src/selective_backprop/strategies")
def opening(*, examples: tuple[int, ...] = (10**7, 10**8), rounds: int = 7) -> Iterator[Once]:
    """What the first batch of an epoch of `auto` takes, where every example was trained on twice.

    A share of the labels is wrong: these examples' losses are high, both times, so that they are
    given up. Classes are as frequent as each other, or one of two is that of 98 in a hundred.
    """
    for count in examples:
        for wrong, frequent in ((0.0, 1 / CLASSES), (0.2, 1 / CLASSES), (0.0, 0.98)):
            about = {"examples": count, "wrong": wrong, "frequent": frequent}
            yield Once(about, lambda a=about: first_batches(**a, rounds=rounds))


@case(*CORE, "src/selective_backprop/strategies")
def resuming(*, examples: int = 10**8) -> Iterator[Once]:
    """What saving and resuming take with `auto`, where every example was trained on twice."""
    yield Once(
        {"examples": examples},
        lambda: saved_and_resumed(trained_twice(examples, 0.0, 1 / CLASSES), examples),
    )


def saved_and_resumed(loader: sb.SelectiveLoader, examples: int) -> list[Row]:
    """Return the seconds, and the bytes of the state."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.pt"
        began = time.monotonic()
        torch.save(loader.state_dict(), path)
        saved = time.monotonic() - began
        began = time.monotonic()
        loader.load_state_dict(torch.load(path, weights_only=True))
        resumed = time.monotonic() - began
        size = path.stat().st_size
    return [
        value("saving", saved, "seconds"),
        value("resuming", resumed, "seconds"),
        value("saved state", size / examples, "bytes per example"),
    ]


def trained_twice(examples: int, wrong: float, frequent: float) -> sb.SelectiveLoader:
    """Return a loader of `auto` whose examples all have two recorded losses, and a class."""
    loader = sb.SelectiveLoader(
        DataLoader(Indices(examples), 128),
        None,
        None,
        sb.auto(),
        with_selection=True,
        generator=torch.Generator().manual_seed(0),
        quiet=True,
    )
    assert loader.ledger is not None
    generator = torch.Generator().manual_seed(0)
    for _, start in itertools.product(range(2), range(0, examples, 10**6)):
        rows = torch.arange(start, min(start + 10**6, examples))
        losses = torch.empty(len(rows)).exponential_(2.0, generator=generator)
        losses[rows % 100 < 100 * wrong] += 5.0
        even = frequent * CLASSES == 1
        targets = rows % CLASSES if even else (rows % 100 >= 100 * frequent).long()
        loader.ledger.hand_out(rows)
        loader.record(sb.Selection(rows, torch.ones(len(rows))), losses, targets=targets)
    return loader


def first_batches(examples: int, wrong: float, frequent: float, rounds: int) -> list[Row]:
    """Return the CPU seconds and the peak of memory."""
    loader = trained_twice(examples, wrong, frequent)
    seconds, peaks = [], []
    for number in range(1, rounds + 1):
        loader.set_epoch(number)
        before = resident()
        forget_peak()
        begun = time.process_time()
        next(iter(loader))
        seconds.append(time.process_time() - begun)
        peaks.append((peak() - before) / examples)
    middle = value("first batch", statistics.median(seconds), "CPU seconds")
    return [
        middle
        | {"low": min(seconds), "high": max(seconds), "rounds": rounds}
        | {"peak_bytes_per_example": max(peaks)}
    ]
