"""Real processes that form process groups, started once and asked again and again."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import distributed

TIMEOUT = 20.0  # seconds, of a process group
MARGIN = 40.0  # seconds beyond it until a process counts as hung
PRELOADED = (
    "pytest",
    "sklearn.datasets",
    "fixture_rank_types",
    "fixture_rank_models",
    "fixture_rank_ledger",
)


@dataclass(frozen=True)
class Failed:
    """What a rank raised instead of answering."""

    kind: str
    message: str


class Ranks:
    """Some processes; the first of them form a group.

    Args:
        most: how many processes there are.
        folder: where their stores lie.
    """

    def __init__(self, most: int, folder: Path) -> None:
        self._folder = folder
        self._groups = 0
        self.size = 0
        self._timeout = TIMEOUT
        context = multiprocessing.get_context("forkserver")  # imports once, and then forks
        context.set_forkserver_preload(list(PRELOADED))
        self.pipes, self.processes = [], []
        with _importable():
            for _ in range(most):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                self.pipes.append(ours)
                self.processes.append(process)

    def form(self, size: int, timeout: float = TIMEOUT) -> "Ranks":
        """Let the first `size` processes be a process group, if they are not."""
        if (size, timeout) != (self.size, self._timeout):
            self.disband()
            self._timeout = timeout
            self._groups += 1
            store = self._folder / f"store-{self._groups}"
            self.size = size
            assert self.each(_join, [(rank, size, str(store), timeout) for rank in range(size)])
        return self

    def disband(self) -> "Ranks":
        """Let the processes be no group."""
        if self.size:
            self.run(_leave)
            self.size = 0
        return self

    def run(self, task: Callable[..., Any], *args: Any) -> list[Any]:
        """Return what each rank of the group makes of the same arguments, or `Failed`."""
        return self.each(task, [args] * self.size)

    def each(self, task: Callable[..., Any], args: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return what each rank makes of arguments of its own."""
        self.send(task, args)
        return [self.receive(rank) for rank in range(len(args))]

    def send(self, task: Callable[..., Any], args: Sequence[tuple[Any, ...]]) -> None:
        for pipe, own in zip(self.pipes, args, strict=False):
            pipe.send((task, own))

    def receive(self, rank: int) -> Any:
        assert self.pipes[rank].poll(TIMEOUT + MARGIN), f"rank {rank} hangs"
        return self.pipes[rank].recv()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


@contextmanager
def started_ranks(most: int, folder: Path) -> Iterator[Ranks]:
    ranks = Ranks(most, folder)
    try:
        yield ranks
    finally:
        ranks.close()


@contextmanager
def _importable() -> Iterator[None]:
    """Let the fork server find the tests' modules, which it looks for before its path is set."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            task, args = pipe.recv()
        except EOFError:
            return
        try:
            answer = task(*args)
        except Exception as error:
            answer = Failed(type(error).__name__, str(error))
        pipe.send(answer)


def _join(rank: int, size: int, store: str, timeout: float) -> bool:
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
    )
    return True


def _leave() -> None:
    distributed.destroy_process_group()
