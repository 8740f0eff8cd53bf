"""Measure what large data sets and endless streams take: memory, and seconds to begin.

    python benchmarks/size.py --out records/bench/size.json

A ledger of a hundred million examples is opened, filled, drawn from and saved; and a strategy
selects from a stream without end, for which memory must not grow. One CPU thread.
"""

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from recording import write_record
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import selective_backprop as sb

BATCH = 16
LOOKS = 20


class Endless(IterableDataset):
    """Examples that are made up as they are asked for, a batch at a time."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        while True:
            yield torch.randn(BATCH, 8, generator=generator), torch.zeros(BATCH)


class Indices:
    """A data set of so many examples, none of which is ever read."""

    def __init__(self, examples: int) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return self._examples

    def __getitem__(self, index: int) -> int:
        return index


def main() -> int:
    """Measure, print, write a record; return 1 if memory grew or a ledger is too large."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=10**8, help="of the ledger")
    parser.add_argument("--batches", type=int, default=10**6, help="of the stream")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=100)
    stream = measure_stream(options.batches, console)
    ledger = measure_ledger(options.examples)
    console.print(ledger)
    if options.out:
        write_record(
            options.out,
            stream=stream,
            ledger=ledger,
        )
    grew = stream["grew_bytes"] > 2**20
    return int(grew or ledger["bytes_per_example"] > 8.1 or ledger["seconds_to_open"] > 5)


def measure_stream(batches: int, console: Console) -> dict[str, Any]:
    """Select from a stream by losses that cost nothing, and look at the memory on the way.

    Args:
        batches: candidate batches of 16 examples.
        console: told of each look.
    """
    loader = sb.SelectiveLoader(
        DataLoader(Endless(), batch_size=None),
        nn.Identity(),
        None,
        sb.selective_backprop(rate=1 / 4, warmup_epochs=0),
        losses=lambda model, batch: batch[0][:, 0],
        batch_size=BATCH,
    )
    looks, began = [], time.monotonic()
    every = batches // LOOKS
    for _ in loader:
        came = loader.stats.candidates // BATCH
        if came >= every * (len(looks) + 1):
            seconds = round(time.monotonic() - began, 1)
            looks.append({"batches": came, "bytes": resident(), "seconds": seconds})
            console.print(looks[-1])
        if came >= batches:
            break
    # The first looks are of a process that still loads code and warms its allocator up.
    settled = [look["bytes"] for look in looks[2:]]
    half = len(settled) // 2
    grew = max(settled[half:]) - max(settled[:half])
    return {"batches": batches, "rows": BATCH, "looks": looks, "grew_bytes": grew}


def measure_ledger(examples: int) -> dict[str, Any]:
    """Open a ledger by the strategy that keeps one, and file, recall and save scores."""
    losses = torch.rand(10**6)
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
    loader.record(first, losses[:1000])
    ledger = loader._parts.ledger  # the only look inside
    assert ledger is not None
    ledger.count(first.indices)
    opened, taken = time.monotonic() - began, resident() - before
    began = time.monotonic()
    for start in range(0, examples, len(losses)):
        rows = torch.arange(start, min(start + len(losses), examples))
        loader.record(sb.Selection(rows, torch.ones(len(rows))), losses[: len(rows)])
    filed = time.monotonic() - began
    began, before = time.monotonic(), resident()
    next(iter(loader))
    started, drawn = time.monotonic() - began, resident() - before
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        torch.save(loader.state_dict(), Path(folder) / "state.pt")
        saved = time.monotonic() - began
        size = (Path(folder) / "state.pt").stat().st_size
    return {
        "examples": examples,
        "seconds_to_open": round(opened, 3),
        "bytes_per_example": round(taken / examples, 2),
        "nanoseconds_to_file_an_example": round(1e9 * filed / examples, 1),
        "seconds_to_begin_an_epoch": round(started, 1),
        "bytes_per_example_while_it_runs": round(drawn / examples, 2),
        "seconds_to_save": round(saved, 1),
        "bytes_per_example_saved": round(size / examples, 2),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def resident() -> int:
    """Return the bytes of this process's memory that are in use; Linux alone tells."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * resource.getpagesize()


def forget_peak() -> None:
    """Let the peak of memory be counted anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak() -> int:
    """Return the most bytes of memory that were in use since then."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    sys.exit(main())
