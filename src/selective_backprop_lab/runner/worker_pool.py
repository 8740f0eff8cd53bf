"""Jobs one after the other, or several at a time in processes of their own."""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, TypeVar, runtime_checkable

import selective_backprop as sb
from selective_backprop_lab.training.stopping import sigterm_leaves
from selective_backprop_lab.training.threads import limit_threads

PATIENCE = 30.0  # seconds that a process has for its last checkpoint


@runtime_checkable
class Job(Protocol):
    """Work that leaves files behind, and can be sent to another process."""

    @property
    def words(self) -> str:
        """What it is."""

    def carry_out(self, tell: Callable[[Any], None]) -> None:
        """Do it, or the rest of it, and tell after each step what came of it."""


_J = TypeVar("_J", bound=Job)


def run_jobs(
    work: Sequence[_J], *, jobs: int, threads: int, watch: Callable[[_J, Any], None]
) -> None:
    """Carry jobs out.

    Whatever stops this, at any moment, costs at most what those that were under way have done since
    their last checkpoints: what is done stays done.

    Args:
        work: in the order in which to begin it.
        jobs: how many at a time; from 2, each in a process of its own.
        threads: CPU threads of each.
        watch: told of each step of a job, and of None when it is done.

    Raises:
        SelectiveBackpropError: what a job raised, or a process that was killed.
    """
    if jobs == 1 or len(work) < 2:
        for job in work:
            job.carry_out(lambda news, job=job: watch(job, news))
            watch(job, None)
        return
    # Forking a process whose libraries have started threads may hang.
    context = multiprocessing.get_context("spawn")
    pending, under_way = iter(work), dict[Any, _J]()
    processes: list[BaseProcess] = []
    try:
        for _, job in zip(range(jobs), pending, strict=False):
            connection, theirs = context.Pipe()
            processes.append(context.Process(target=_work, args=(theirs, threads)))
            processes[-1].start()
            theirs.close()  # or the end of the process would not be seen
            connection.send(job)
            under_way[connection] = job
        while under_way:
            for connection in wait(list(under_way)):
                _hear(connection, under_way, pending, watch)
    except BaseException:
        for connection in under_way:
            connection.close()  # which also ends those that ignore SIGTERM
        for process in processes:
            process.terminate()
        latest = time.monotonic() + PATIENCE
        for process in processes:
            process.join(max(0.0, latest - time.monotonic()))
            process.kill()
        raise
    finally:
        for process in processes:
            process.join()


def _hear(
    connection: Any,
    under_way: dict[Any, _J],
    pending: Iterator[_J],
    watch: Callable[[_J, Any], None],
) -> None:
    """Take in what a process tells: a step, an error, or None for a job that is done."""
    try:
        news = connection.recv()
    except (EOFError, OSError) as error:
        names = "; ".join(job.words for job in under_way.values())
        raise sb.RecordError(
            f"a process was killed while these ran: {names}. What is finished is kept: run the "
            "same again, with fewer --jobs if memory ran out."
        ) from error
    if isinstance(news, Exception):
        raise news
    watch(under_way[connection], news)
    if news is None:
        del under_way[connection]
        job = next(pending, None)
        connection.send(job)
        if job is not None:
            under_way[connection] = job


def _work(connection: Connection, threads: int) -> None:
    """Carry out the jobs that come, in a process of its own, until None comes."""
    # Ctrl-C reaches the whole group; the parent decides, and ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_threads(threads)
    threading.Thread(target=_follow_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent is gone, or no longer listens
        for job in iter(connection.recv, None):
            try:
                with sigterm_leaves():
                    job.carry_out(connection.send)
                news = None
            except sb.SelectiveBackpropError as error:
                news = error
            except Exception as error:  # whatever a model of the user's raises
                told = "".join(traceback.format_exception(error))
                news = sb.RecordError(f"{job.words}: {told}")
            connection.send(news)


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
