"""Memory and seconds for large data sets and endless streams. It needs Linux."""

import itertools
import resource
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import selective_backprop as sb
from benchmarks.case import Row, case, value
from benchmarks.cases.steps import record_all

BATCH, LOOKS, CLASSES = 16, 20, 10
CORE = ("src/selective_backprop/_loader", "src/selective_backprop/_memory")


def resident() -> int:
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * resource.getpagesize()


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        while True:
            yield torch.randn(BATCH, 8, generator=generator), torch.zeros(BATCH)


@case(*CORE)
def stream(*, batches: int = 10**6) -> Iterator[Row]:
    """The memory of a strategy that selects from a stream without end."""
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
    settled = looks[2:]  # before, the process still loads code and warms its allocator up
    half = len(settled) // 2
    grew = max(settled[half:]) - max(settled[:half])
    about = {"batches": batches, "rows": BATCH}
    yield about | value("growth from the first half to the second", grew, "bytes", 2**20)


def over_indices(examples: int, strategy: sb.Strategy) -> sb.SelectiveLoader:
    data, seeded = DataLoader(range(examples), BATCH), torch.Generator().manual_seed(0)
    options = {"with_selection": True, "generator": seeded, "quiet": True}
    return sb.SelectiveLoader(data, None, None, strategy, **options)


@case(*CORE)
def ledger(*, examples: int = 10**8) -> Iterator[Row]:
    """Memory and seconds of a ledger: opening, recording, drawing and saving."""
    before, began = resident(), time.monotonic()
    loader = over_indices(examples, sb.recorded_sb(1 / 2, schedule=sb.Schedule()))
    first = sb.Selection(torch.arange(1000), torch.ones(1000))
    loader.record(first, torch.rand(1000))
    assert loader.ledger is not None
    loader.ledger.count(first.indices)  # opens the counts, too
    opened, taken = time.monotonic() - began, resident() - before
    began = time.monotonic()
    record_all(loader, examples)
    filed = time.monotonic() - began
    began, before = time.monotonic(), resident()
    next(iter(loader))
    started, drawn = time.monotonic() - began, resident() - before
    for row in (
        value("opening", opened, "seconds", 5.0),
        value("memory", taken / examples, "bytes per example", 8.1),
        value("filing", 1e9 * filed / examples, "nanoseconds per example"),
        value("beginning an epoch", started, "seconds"),
        value("memory while it runs, beyond", drawn / examples, "bytes per example"),
        *saved_and_resumed(loader, examples),
    ):
        yield {"examples": examples} | row


@case(*CORE, "src/selective_backprop/strategies")
def resuming(*, examples: int = 10**8, rounds: int = 3) -> Iterator[Row]:
    """Seconds to save, to resume and to get an epoch's first batch with `auto`."""
    loader = over_indices(examples, sb.auto())
    assert loader.ledger is not None
    generator, seconds = torch.Generator().manual_seed(0), []
    for _, rows in itertools.product(range(2), torch.arange(examples).split(10**6)):
        losses = torch.empty(len(rows)).exponential_(2.0, generator=generator)
        loader.ledger.hand_out(rows)
        loader.record(sb.Selection(rows, torch.ones(len(rows))), losses, targets=rows % CLASSES)
    for row in saved_and_resumed(loader, examples):
        yield {"examples": examples} | row
    for number in range(1, rounds + 1):
        loader.set_epoch(number)
        begun = time.process_time()
        next(iter(loader))
        seconds.append(time.process_time() - begun)
    spread = {"low": min(seconds), "high": max(seconds), "rounds": rounds}
    first = value("first batch", statistics.median(seconds), "CPU seconds")
    yield {"examples": examples} | first | spread


def saved_and_resumed(loader: sb.SelectiveLoader, examples: int) -> list[Row]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.pt"
        began = time.monotonic()
        torch.save(loader.state_dict(), path)
        saved = time.monotonic() - began
        began = time.monotonic()
        loader.load_state_dict(torch.load(path, weights_only=True))
        resumed = time.monotonic() - began
        size = path.stat().st_size / examples
    return [
        value("saving", saved, "seconds"),
        value("resuming", resumed, "seconds"),
        value("saved state", size, "bytes per example"),
    ]
