"""Tasks one after the other, or several at a time in processes of their own."""

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import selective_backprop as sb
from selective_backprop.lab.training.threads import limit_threads

PATIENCE = 30.0  # seconds that a process has for its last checkpoint


@runtime_checkable
class Task(Protocol):
    """Work that leaves files behind, and can be sent to another process."""

    @property
    def words(self) -> str:
        """What it is."""

    def carry_out(self, tell: Callable[[Any], None]) -> None:
        """Do it, or the rest of it, and tell after each step what came of it."""


_T = TypeVar("_T", bound=Task)


def carry_out(
    tasks: Sequence[_T], *, jobs: int, threads: int, watch: Callable[[_T, Any], None]
) -> None:
    """Carry tasks out.

    Whatever stops this, at any moment, costs at most what those that were under way have done since
    their last checkpoints: what is done stays done.

    Args:
        tasks: in the order in which to begin them.
        jobs: how many at a time; from 2, each in a process of its own.
        threads: CPU threads of each.
        watch: told of each step of a task, and of None when it is done.

    Raises:
        SelectiveBackpropError: what a task raised.
    """
    if jobs == 1 or len(tasks) == 1:
        for task in tasks:
            task.carry_out(lambda news, task=task: watch(task, news))
            watch(task, None)
        return
    with _crew(min(jobs, len(tasks)), threads) as workers:
        _deal(list(tasks), workers, watch)


class _Worker(Generic[_T]):
    """A process that carries out one task after the other."""

    def __init__(self, process: BaseProcess, line: Connection) -> None:
        self.process = process
        self.line = line
        self.task: _T | None = None

    def begin(self, task: _T | None) -> None:
        self.task = task
        self.line.send(task)

    def hear(self) -> tuple[str, object]:
        try:
            return self.line.recv()
        except EOFError:
            self.process.join()
            words = self.task.words if self.task else "work"
            raise sb.RecordError(
                f"the process for {words} ended with status {self.process.exitcode}. What is "
                "finished is kept: run the same again, with fewer --jobs if memory ran out."
            ) from None


@contextmanager
def _crew(count: int, threads: int) -> Generator[list[_Worker]]:
    # Forking a process whose libraries have started threads may hang.
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, threads), daemon=True)
            process.start()
            theirs.close()
            workers.append(_Worker(process, ours))
        yield workers
    finally:
        # Each writes a checkpoint of what it has begun; what that takes too long for goes on from
        # the checkpoint before.
        for worker in workers:
            worker.process.terminate()
            worker.line.close()  # ends what ignores SIGTERM, once it has something to tell
        for worker in workers:
            worker.process.join(PATIENCE)
            worker.process.kill()
            worker.process.join()


def _deal(waiting: list[_T], workers: list[_Worker[_T]], watch: Callable[[_T, Any], None]) -> None:
    for worker in workers:
        worker.begin(waiting.pop(0))
    busy = {worker.line: worker for worker in workers}
    while busy:
        for line in wait(list(busy)):
            assert isinstance(line, Connection)
            worker = busy[line]
            kind, what = worker.hear()
            if isinstance(what, BaseException):
                raise what
            assert worker.task is not None
            watch(worker.task, None if kind == "done" else what)
            if kind == "done":
                worker.begin(waiting.pop(0) if waiting else None)
                if worker.task is None:
                    del busy[line]


def _work(line: Connection, threads: int) -> None:
    # Ctrl-C reaches the whole group; the parent decides, and ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_threads(threads)
    try:
        while (task := line.recv()) is not None:
            try:
                task.carry_out(lambda news: line.send(("step", news)))
            except sb.SelectiveBackpropError as error:
                line.send(("failed", error))
            except Exception as error:  # whatever a model of the user's raises
                told = "".join(traceback.format_exception(error))
                line.send(("failed", sb.RecordError(f"{task.words}: {told}")))
            else:
                line.send(("done", None))
    except (EOFError, OSError):
        return  # the parent is gone
