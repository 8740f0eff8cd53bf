"""Meeting needs one after the other, or several at a time in processes of their own."""

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import selective_backprop as sb
from selective_backprop.lab.papers.needs import Need, Place
from selective_backprop.lab.threads import limit_threads

PATIENCE = 30.0  # seconds that a process has for its last checkpoint
Watch = Callable[[Need, str | None], None]
"""Told of each step of a need, in words, and of None when it is met."""


def meet_all(needs: Sequence[Need], place: Place, *, jobs: int, threads: int, watch: Watch) -> None:
    """Meet needs that are not met yet.

    Whatever stops this, at any moment, costs at most what those that were under way have done since
    their last checkpoints: what is met stays met.

    Args:
        needs: in the order in which to begin them.
        place: where to.
        jobs: how many at a time; from 2, each in a process of its own.
        threads: CPU threads of each.
        watch: told of what happens.

    Raises:
        SelectiveBackpropError: what a need raised.
    """
    if jobs == 1 or len(needs) == 1:
        for need in needs:
            need.meet(place, lambda words, need=need: watch(need, words))
            watch(need, None)
        return
    with _crew(min(jobs, len(needs)), place, threads) as workers:
        _deal(list(needs), workers, watch)


class _Worker:
    """A process that meets one need after the other."""

    def __init__(self, process: BaseProcess, line: Connection) -> None:
        self.process = process
        self.line = line
        self.need: Need | None = None

    def begin(self, need: Need | None) -> None:
        self.need = need
        self.line.send(need)

    def hear(self) -> tuple[str, object]:
        try:
            return self.line.recv()
        except EOFError:
            self.process.join()
            words = self.need.words if self.need else "work"
            raise sb.RecordError(
                f"the process for {words} ended with status {self.process.exitcode}. What is "
                "finished is kept: run the same again, with fewer --jobs if memory ran out."
            ) from None


@contextmanager
def _crew(count: int, place: Place, threads: int) -> Generator[list[_Worker]]:
    # Forking a process whose libraries have started threads may hang.
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, place, threads), daemon=True)
            process.start()
            theirs.close()
            workers.append(_Worker(process, ours))
        yield workers
    finally:
        # Each writes a checkpoint of what it has begun; what that takes too long for goes on from
        # the checkpoint before.
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join(PATIENCE)
            worker.process.kill()
            worker.process.join()
            worker.line.close()


def _deal(waiting: list[Need], workers: list[_Worker], watch: Watch) -> None:
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
            assert worker.need is not None
            watch(worker.need, None if kind == "met" else str(what))
            if kind == "met":
                worker.begin(waiting.pop(0) if waiting else None)
                if worker.need is None:
                    del busy[line]


def _work(line: Connection, place: Place, threads: int) -> None:
    # Ctrl-C reaches the whole group; the parent decides, and ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_threads(threads)
    try:
        while (need := line.recv()) is not None:
            try:
                need.meet(place, lambda words: line.send(("step", words)))
            except sb.SelectiveBackpropError as error:
                line.send(("failed", error))
            except Exception as error:  # whatever a model of the user's raises
                told = "".join(traceback.format_exception(error))
                line.send(("failed", sb.RecordError(f"{need.words}: {told}")))
            else:
                line.send(("met", None))
    except (EOFError, OSError):
        return  # the parent is gone
