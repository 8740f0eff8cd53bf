"""Measure what ranks exchange for each training batch, beside what DDP exchanges for it anyway.

    PYTHONPATH=benchmarks python benchmarks/ranks.py --out ranks.json

Two processes with gloo, of one thread each, on this machine. In every round each of them waits for
the other, then does each thing once, and the wall clock of the slower rank counts: the exchange of
a window's scores with their filing, the sum of the gradients of a net, and a whole training step
of that net under DDP. A rank that has to wait for the other's batch is no part of it.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gate import BATCH, CHANNELS_LAST, RATE, WINDOW
from recording import write_record
from rich.console import Console
from rich.table import Table
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import selective_backprop as sb
from selective_backprop._distributed.group import Group, find_ranks
from selective_backprop._distributed.messages import Exchange, Head, Status
from selective_backprop._memory.history import SharedHistory
from selective_backprop_lab.nets.small import resnet9

RANKS = 2
FOUND = "found.json"
WIDTHS = (8, 16)


def sharing(group: Group) -> Callable[[], None]:
    """Return what is done for each training batch: the exchange, and the filing of all scores."""
    shared = SharedHistory(sb.selectors.History(1024 * group.size), WINDOW, None)
    exchange = Exchange(group, WINDOW)
    scores = torch.rand(WINDOW, generator=torch.Generator().manual_seed(group.rank))

    def once() -> None:
        shared.file(scores)
        _, told = exchange.swap(Head(Status.READY, 0, 0), shared.retract())
        shared.settle(told)

    return once


def training(width: int) -> tuple[Callable[[], None], Callable[[], None], int]:
    """Return a sum of gradients, a training step, and the bytes of the gradients."""
    torch.manual_seed(0)
    net = resnet9(3, 10, width=width).to(memory_format=CHANNELS_LAST)
    gradients = torch.zeros(sum(parameter.numel() for parameter in net.parameters()))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=CHANNELS_LAST)
    labels = torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return lambda: distributed.all_reduce(gradients), step, gradients.nbytes


def slower(work: Callable[[], None]) -> float:
    """Return the seconds that the slower rank takes for some work that both begin together."""
    distributed.barrier()
    start = time.perf_counter()
    work()
    seconds = torch.tensor(time.perf_counter() - start)
    distributed.all_reduce(seconds, distributed.ReduceOp.MAX)
    return float(seconds)


def measure(rank: int, folder: Path, rounds: int) -> None:
    """Be one of the ranks; the first writes what was found into the folder."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=RANKS
    )
    group = find_ranks()
    assert isinstance(group, Group)
    share = sharing(group)
    entries = []
    for width in WIDTHS:
        reduce, step, size = training(width)
        for work in (share, reduce, step):
            slower(work)  # the first time is not the usual one
        times = [[slower(work) for work in (share, reduce, step)] for _ in range(rounds)]
        columns = zip(("exchange", "all-reduce", "step"), zip(*times, strict=True), strict=True)
        entries.append(
            {
                "net": f"resnet9, width {width}",
                "gradient_bytes": size,
                "message_bytes": 4 * (WINDOW + 2),
                "seconds": {name: spread(list(values)) for name, values in columns},
            }
        )
    if rank == 0:
        (folder / FOUND).write_text(json.dumps(entries), encoding="utf-8")
    distributed.destroy_process_group()


def spread(seconds: list[float]) -> dict[str, float]:
    """Return the median and the quartiles."""
    low, median, high = statistics.quantiles(seconds, n=4)
    return {"median": median, "low": low, "high": high}


def show(entries: list[dict[str, Any]]) -> None:
    """Print a table."""
    table = Table("net", "exchange ms", "all-reduce ms", "step ms", box=None)
    for entry in entries:
        seconds = entry["seconds"].values()
        cells = (
            f"{1e3 * s['median']:.3f} ({1e3 * s['low']:.3f} to {1e3 * s['high']:.3f})"
            for s in seconds
        )
        table.add_row(entry["net"], *cells)
    Console(width=120).print(table)


def main() -> int:
    """Measure in two processes, print a table, write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranks = [
            context.Process(target=measure, args=(rank, folder, options.rounds))
            for rank in range(RANKS)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            return 1
        entries = json.loads((folder / FOUND).read_text(encoding="utf-8"))
    show(entries)
    if options.out:
        write_record(
            options.out,
            ranks=RANKS,
            backend="gloo",
            batch_size=BATCH,
            rate=RATE,
            window=WINDOW,
            rounds=options.rounds,
            clock="wall clock of the slower rank, interleaved rounds",
            nets=entries,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
