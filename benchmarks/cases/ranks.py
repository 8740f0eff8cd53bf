"""What ranks exchange for each training batch, beside what DDP exchanges for it anyway.

Two processes with gloo, of one thread each, on this machine. In every round each of them waits for
the other, then does each thing once, and the wall clock of the slower rank counts. The exchange is
what selecting by scores that cost nothing takes in a group, less what it takes alone.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import selective_backprop as sb
from benchmarks.case import Once, Row, case, value
from benchmarks.images import BATCH, RATE, WINDOW, Net
from selective_backprop._distributed.group import Group, find_ranks
from selective_backprop._distributed.messages import HEAD, Exchange, Head, Status
from selective_backprop_lab.nets.small import resnet9

RANKS, WIDTHS = 2, (8, 16)
ABOUT = {"ranks": RANKS, "backend": "gloo", "batch_size": BATCH, "window": WINDOW}
ABOUT |= {"clock": "wall clock of the slower rank, interleaved rounds"}


@case("src/selective_backprop/_distributed", "src/selective_backprop/_memory")
def ranks(*, rounds: int = 100) -> Iterator[Once]:
    """What ranks exchange for each training batch, beside what DDP exchanges for it anyway."""
    yield Once(ABOUT, lambda: measured(rounds))


@case("src/selective_backprop/_distributed")
def exchange(
    *,
    ranks: tuple[int, ...] = (2, 4, 8),
    scores: tuple[int, ...] = (0, 384, 3072),
    rounds: int = 200,
) -> Iterator[Once]:
    """What one message of each rank takes, by ranks and scores in it."""
    for size in ranks:
        about = {"ranks": size, "backend": "gloo", "clock": "wall clock of the slowest rank"}
        yield Once(about, lambda size=size: in_processes(exchange_scores, size, (scores, rounds)))


@case("src/selective_backprop/_distributed", "src/selective_backprop/_pipeline/lockstep.py")
def overlap(
    *, ranks: tuple[int, ...] = (2, 4, 8), step: float = 0.1, rounds: int = 60
) -> Iterator[Once]:
    """Seconds between two steps in which a process only sleeps, by when messages are awaited."""
    for size in ranks:
        about = {"ranks": size, "backend": "gloo", "batch_size": BATCH, "window": WINDOW}
        yield Once(
            about | {"step": step},
            lambda size=size: in_processes(between_steps, size, (step, rounds)),
        )


def measured(rounds: int) -> list[Row]:
    """Measure in processes of their own."""
    return in_processes(be_a_rank, RANKS, (rounds,))


def in_processes(work: Callable[..., None], ranks: int, arguments: tuple[object, ...]) -> list[Row]:
    """Return what the first of some ranks found, which all do `work` in processes of their own."""
    context = get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = [
            context.Process(target=work, args=(rank, ranks, folder, *arguments))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            raise SystemExit("a rank failed")
        return json.loads((folder / "found.json").read_text(encoding="utf-8"))


class Scores(IterableDataset[Tensor]):
    """Batches of scores without end."""

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(0)
        while True:
            yield torch.rand(BATCH, generator=generator)


def selecting() -> Callable[[], object]:
    """Return what selects a training batch, with all ranks, by scores that cost nothing."""
    loader = sb.SelectiveLoader(
        DataLoader(Scores(), batch_size=None),
        nn.Identity(),
        None,
        sb.selective_backprop(RATE, warmup_epochs=0),
        losses=lambda model, batch: batch,
        batch_size=BATCH,
        quiet=True,
    )
    endless = iter(loader)
    next(endless)
    return lambda: next(endless)


def training(width: int) -> tuple[Callable[[], object], Callable[[], object], int]:
    """Return a sum of gradients, a training step, and the bytes of the gradients."""
    net = Net(resnet9(3, 10, width=width))
    gradients = torch.zeros(sum(parameter.numel() for parameter in net.model.parameters()))
    net.model = DistributedDataParallel(net.model)
    images = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (BATCH,))
    return (
        lambda: distributed.all_reduce(gradients),
        lambda: net.step(images, labels),
        gradients.nbytes,
    )


def slower(work: Callable[[], object]) -> float:
    """Return the seconds that the slower rank takes for some work that both begin together."""
    distributed.barrier()
    start = time.perf_counter()
    work()
    seconds = torch.tensor(time.perf_counter() - start)
    distributed.all_reduce(seconds, distributed.ReduceOp.MAX)
    return float(seconds)


def join(rank: int, ranks: int, folder: Path) -> None:
    """Become one of the ranks of a group."""
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)


def exchange_scores(
    rank: int, ranks: int, folder: Path, scores: tuple[int, ...], rounds: int
) -> None:
    """Be one of the ranks that exchange so many scores; the first writes what was found."""
    join(rank, ranks, folder)
    group, rows = find_ranks(), []
    assert isinstance(group, Group)
    for count in scores:
        swap = partial(Exchange(group, count).swap, Head(Status.READY, 0, 0), [torch.rand(count)])
        times = [slower(swap) for _ in range(rounds + 10)][10:]
        low, middle, high = statistics.quantiles(times, n=4)
        spread = {"low": low, "high": high, "rounds": rounds, "message_bytes": 4 * (HEAD + count)}
        rows.append(value("exchange", middle, "seconds") | spread)
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(rows), encoding="utf-8")
    distributed.destroy_process_group()


def between_steps(rank: int, ranks: int, folder: Path, step: float, rounds: int) -> None:
    """Be one of the ranks that take steps; the first writes how long it was between them."""
    torch.set_num_threads(1)
    data = DataLoader(TensorDataset(torch.rand(WINDOW * (rounds + 2))), BATCH)

    def selecting(overlap: bool = False) -> sb.SelectiveLoader:
        strategy = sb.selective_backprop(RATE, warmup_epochs=0)
        options = {"losses": lambda model, batch: batch[0], "batch_size": BATCH, "quiet": True}
        return sb.SelectiveLoader(data, nn.Identity(), None, strategy, overlap=overlap, **options)

    loaders = {"no other rank": selecting()}  # built before there is a group
    join(rank, ranks, folder)
    loaders |= {"before the step": selecting(), "after the step": selecting(overlap=True)}
    rows = []
    for name, loader in loaders.items():
        distributed.barrier()
        batches, seconds = iter(loader), []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            next(batches)
            seconds.append(time.perf_counter() - start)
            time.sleep(step)
        del batches
        low, middle, high = statistics.quantiles(seconds[1:], n=4)
        spread = {"low": low, "high": high, "rounds": rounds, "awaited": name}
        rows.append(value("between steps", middle, "seconds") | spread)
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(rows), encoding="utf-8")
    distributed.destroy_process_group()


def be_a_rank(rank: int, ranks: int, folder: Path, rounds: int) -> None:
    """Be one of the ranks; the first writes what was found into the folder."""
    torch.set_num_threads(1)
    alone = selecting()  # before there is a group
    join(rank, ranks, folder)
    together = selecting()
    rows = []
    for width in WIDTHS:
        reduce, step, size = training(width)
        works = (alone, together, reduce, step)
        for work in works:
            slower(work)  # the first time is not the usual one
        times = [[slower(work) for work in works] for _ in range(rounds)]
        about = {"net": f"resnet9, width {width}", "gradient_bytes": size}
        about["message_bytes"] = 4 * (WINDOW + HEAD)
        exchange = [group - single for single, group, _, _ in times]
        columns = (exchange, *([each[place] for each in times] for place in (2, 3)))
        for name, seconds in zip(("exchange", "all-reduce", "step"), columns, strict=True):
            low, _, high = statistics.quantiles(seconds, n=4)
            spread = {"low": low, "high": high, "rounds": rounds}
            rows.append(value(name, statistics.median(seconds), "seconds") | spread | about)
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(rows), encoding="utf-8")
    distributed.destroy_process_group()
