"""Jobs one after the other, or several at a time in processes of their own."""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.queues import SimpleQueue
from typing import Any, Protocol, TypeVar, runtime_checkable

import selective_backprop as sb
from selective_backprop.lab.training.stopping import sigterm_leaves
from selective_backprop.lab.training.threads import limit_threads

PATIENCE = 30.0  # seconds that a process has for its last checkpoint
_LOOKING = 0.1  # seconds between two looks at what the processes tell


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
    others = set(multiprocessing.active_children())
    with _pool(min(jobs, len(work)), threads) as (pool, heard):
        numbers = {pool.submit(_carry_out, number, job): number for number, job in enumerate(work)}
        processes = set(multiprocessing.active_children()) - others  # started by submitting
        waiting, under_way = set(numbers), set[int]()
        while waiting:
            done, waiting = wait(waiting, _LOOKING, FIRST_COMPLETED)
            while not heard.empty():  # all that those that are done have told is in it
                number, told, news = heard.get()
                under_way.add(number)
                if told:
                    watch(work[number], news)
            # The pool may see a process that died only when the next job is done.
            killed = any(process.exitcode is not None for process in processes)
            for future in sorted(done, key=numbers.__getitem__):
                if isinstance(future.exception(), BrokenProcessPool):
                    killed = True
                    continue
                future.result()
                under_way.remove(numbers[future])
                watch(work[numbers[future]], None)
            if killed:
                names = "; ".join(work[number].words for number in sorted(under_way))
                raise sb.RecordError(
                    f"a process was killed while these ran: {names or 'none'}. What is finished is "
                    "kept: run the same again, with fewer --jobs if memory ran out."
                )


@contextmanager
def _pool(count: int, threads: int) -> Generator[tuple[ProcessPoolExecutor, "SimpleQueue[Any]"]]:
    """Start processes; end them with what they have begun kept, whatever happens in the body."""
    # Forking a process whose libraries have started threads may hang.
    context = multiprocessing.get_context("spawn")
    heard, leaving = context.SimpleQueue(), context.Event()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, context, _begin, (threads, heard, leaving))
    try:
        yield pool, heard
    except BaseException:
        leaving.set()
        pool.shutdown(wait=False, cancel_futures=True)
        processes = set(multiprocessing.active_children()) - others
        if len(processes) == count:
            for process in processes:
                process.terminate()
        # Otherwise one was killed, and the pool itself sends SIGTERM to the others, of which a
        # second one would have them leave without a checkpoint.
        latest = time.monotonic() + PATIENCE
        for process in processes:
            process.join(max(0.0, latest - time.monotonic()))
            process.kill()
        raise
    finally:
        pool.shutdown()
        heard.close()


# Of a process of the pool.
_heard: "SimpleQueue[Any]"
_leaving: Any
_busy = threading.Lock()


def _begin(threads: int, heard: "SimpleQueue[Any]", leaving: Any) -> None:
    """Prepare a process of the pool for its jobs."""
    global _heard, _leaving
    _heard, _leaving = heard, leaving
    # Ctrl-C reaches the whole group; the parent decides, and ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        # Between two jobs there is nothing to keep: the pool ends the process.
        signal.signal(signal.SIGTERM, lambda number, frame: None)
    limit_threads(threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        with _busy:
            os._exit(128 + signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def _carry_out(number: int, job: Job) -> None:
    def tell(news: Any) -> None:
        if _leaving.is_set():  # also where SIGTERM is ignored
            raise SystemExit(128 + signal.SIGTERM)
        _heard.put((number, True, news))

    with _busy:
        if _leaving.is_set():
            return
        _heard.put((number, False, None))
        try:
            with sigterm_leaves():
                job.carry_out(tell)
        except sb.SelectiveBackpropError:
            raise
        except SystemExit:
            raise sb.RecordError(f"{job.words}: stopped") from None
        except Exception as error:  # whatever a model of the user's raises
            told = "".join(traceback.format_exception(error))
            raise sb.RecordError(f"{job.words}: {told}") from None
