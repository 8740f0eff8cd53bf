"""The time that ranks need for their messages, beside that of DDP.

The processes use gloo and one thread each, on this machine. They begin each piece of work together,
and the wall clock of the slowest counts.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from benchmarks.case import Row, case, value
from benchmarks.cases.steps import BATCH, RATE, WINDOW, Net
from selective_backprop._distributed.group import HEAD, Exchange, Group, Head, Status, find_ranks
from selective_backprop_lab.nets.models import resnet9

CODE = "src/selective_backprop/_distributed"
WIDTHS = (8, 16)


@case(CODE, "src/selective_backprop/_memory")
def ranks(*, ranks: int = 2, rounds: int = 100) -> Iterator[Row]:
    """The time of an exchange between ranks, of DDP's sum of gradients, and of a whole step."""
    about = {"ranks": ranks, "backend": "gloo", "batch_size": BATCH, "window": WINDOW}
    yield from (about | row for row in in_processes(ranks, beside_a_step, rounds))


@case(CODE)
def exchange(
    *,
    ranks: tuple[int, ...] = (2, 4, 8),
    scores: tuple[int, ...] = (0, 384, 3072),
    rounds: int = 200,
) -> Iterator[Row]:
    """The time of one message of each rank, by the number of ranks and of scores in it."""
    for size in ranks:
        about = {"ranks": size, "backend": "gloo"}
        yield from (about | row for row in in_processes(size, exchange_scores, scores, rounds))


@case(CODE, "src/selective_backprop/_pipeline/lockstep.py")
def overlap(
    *, ranks: tuple[int, ...] = (2, 4, 8), step: float = 0.1, rounds: int = 60
) -> Iterator[Row]:
    """Seconds between two steps in which a process only sleeps, by when messages are awaited."""
    for size in ranks:
        about = {"ranks": size, "backend": "gloo", "batch_size": BATCH, "window": WINDOW}
        about["step"] = step
        yield from (about | row for row in in_processes(size, between_steps, step, rounds))


Join = Callable[[], None]  # makes a process one of the group


def in_processes(ranks: int, work: Callable[..., list[Row]], *arguments: object) -> list[Row]:
    """Let some processes do `work`, called with a `Join`, and return the rows of the first."""
    with tempfile.TemporaryDirectory() as name:
        torch.multiprocessing.spawn(be_a_rank, (ranks, Path(name), work, arguments), ranks)
        return json.loads((Path(name) / "found.json").read_text(encoding="utf-8"))


def be_a_rank(
    rank: int, ranks: int, folder: Path, work: Callable[..., list[Row]], arguments: Sequence[object]
) -> None:
    torch.set_num_threads(1)
    group = {"init_method": f"file://{folder / 'store'}", "world_size": ranks, "rank": rank}
    rows = work(partial(distributed.init_process_group, "gloo", **group), *arguments)
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(rows), encoding="utf-8")
    distributed.destroy_process_group()


def seconds_of(quantity: str, seconds: Sequence[float], **more: object) -> Row:
    """Return a row with the median and the quartiles of some seconds."""
    low, middle, high = statistics.quantiles(seconds, n=4)
    spread = {"low": low, "high": high, "rounds": len(seconds)}
    return value(quantity, middle, "seconds") | spread | more


def slowest(work: Callable[[], object]) -> float:
    """Return the seconds that the slowest rank takes for some work that all begin together."""
    distributed.barrier()
    start = time.perf_counter()
    work()
    seconds = torch.tensor(time.perf_counter() - start)
    distributed.all_reduce(seconds, distributed.ReduceOp.MAX)
    return float(seconds)


def selecting(steps: int, overlap: bool = False) -> sb.SelectiveLoader:
    """Return a loader that selects by scores that cost nothing, for so many steps an epoch."""
    data = TensorDataset(torch.rand(WINDOW * steps, generator=torch.Generator().manual_seed(0)))
    strategy = sb.selective_backprop(RATE, warmup_epochs=0)
    options = {"losses": lambda model, batch: batch[0], "batch_size": BATCH, "quiet": True}
    loader = DataLoader(data, BATCH)
    return sb.SelectiveLoader(loader, nn.Identity(), None, strategy, overlap=overlap, **options)


def exchange_scores(join: Join, scores: Sequence[int], rounds: int) -> list[Row]:
    join()
    group, rows = find_ranks(), []
    assert isinstance(group, Group)
    for count in scores:
        swap = partial(Exchange(group, count).swap, Head(Status.READY, 0, 0), [torch.rand(count)])
        times = [slowest(swap) for _ in range(rounds + 10)][10:]
        rows.append(seconds_of("exchange", times, message_bytes=4 * (HEAD + count)))
    return rows


def between_steps(join: Join, step: float, rounds: int) -> list[Row]:
    loaders = {"no other rank": iter(selecting(rounds + 2))}
    next(loaders["no other rank"])  # before there is a group
    join()
    loaders["before the step"] = iter(selecting(rounds + 2))
    loaders["after the step"] = iter(selecting(rounds + 2, overlap=True))
    rows = []
    for name in [*loaders]:
        distributed.barrier()
        batches, seconds = loaders.pop(name), []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            next(batches)
            seconds.append(time.perf_counter() - start)
            time.sleep(step)
        del batches
        rows.append(seconds_of("between steps", seconds[1:], awaited=name))
    return rows


def beside_a_step(join: Join, rounds: int) -> list[Row]:
    """Select alone and with all ranks, sum gradients, and take a training step of DDP."""
    steps = 2 + len(WIDTHS) * (rounds + 1)
    alone = iter(selecting(steps))
    next(alone)  # before there is a group
    join()
    together, rows = iter(selecting(steps)), []
    for width in WIDTHS:
        net = Net(resnet9(3, 10, width=width))
        gradients = torch.zeros(sum(weights.numel() for weights in net.model.parameters()))
        net.model = DistributedDataParallel(net.model)
        images = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        works = (
            *(partial(next, alone), partial(next, together)),
            partial(distributed.all_reduce, gradients),
            partial(net.step, images, torch.randint(10, (BATCH,))),
        )
        for work in works:
            slowest(work)  # the first time takes longer
        times = [[slowest(work) for work in works] for _ in range(rounds)]
        about = {"net": f"resnet9, width {width}", "gradient_bytes": gradients.nbytes}
        about["message_bytes"] = 4 * (WINDOW + HEAD)
        single, group, sums, steps = zip(*times, strict=True)
        more = [both - own for own, both in zip(single, group, strict=True)]
        for name, seconds in (("exchange", more), ("all-reduce", sums), ("step", steps)):
            rows.append(seconds_of(name, seconds, **about))
    return rows
