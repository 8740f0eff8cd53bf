"""Carry out jobs in one process, or in several side by side.

`ProcessPoolExecutor` and joblib's loky cannot replace it: both return a job's result only at its
end, and neither gives workers time for a last checkpoint, or ends workers whose parent was killed.
"""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import selective_backprop as sb
from selective_backprop_lab.training.process import limit_threads, sigterm_leaves

PATIENCE = 30.0  # seconds that a process gets for its last checkpoint


def run_local(
    work: Sequence[Any], *, jobs: int, threads: int, watch: Callable[[Any, Any], None]
) -> None:
    """Carry out jobs in order, `jobs` at a time in own processes; `watch` each step.

    A job can be pickled, and leaves files behind. It has a `name` for messages, and a generator
    `steps()` that does the job, or the rest of it, and yields each step. If this generator is
    closed early, or interrupted by Ctrl-C or SIGTERM, it saves what was done.
    """
    if jobs == 1 or len(work) < 2:
        for job in work:
            with closing(job.steps()) as steps:
                for step in steps:
                    watch(job, step)
        return
    # Forking a process whose libraries have started threads may hang.
    context = multiprocessing.get_context("spawn")
    pending = iter(work)
    running: dict[Any, Any] = {}
    processes = []
    try:
        for _, job in zip(range(jobs), pending, strict=False):
            connection, theirs = context.Pipe()
            processes.append(context.Process(target=_work, args=(theirs, threads)))
            processes[-1].start()
            theirs.close()  # otherwise the end of the process would not be noticed
            connection.send(job)
            running[connection] = job
        while running:
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                try:
                    step = connection.recv()
                except (EOFError, OSError) as error:
                    names = "; ".join(job.name for job in running.values())
                    raise sb.RecordError(
                        f"a process was killed while these ran: {names}. Finished runs are kept. "
                        "Repeat the command, with fewer --jobs if memory ran out."
                    ) from error
                if isinstance(step, Exception):
                    raise step
                if step is not None:
                    watch(running[connection], step)
                    continue
                del running[connection]
                job = next(pending, None)
                connection.send(job)
                if job is not None:
                    running[connection] = job
    except BaseException:
        for connection in running:
            connection.close()  # this also ends processes that ignore SIGTERM
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


def _work(connection: Connection, threads: int) -> None:
    # Ctrl-C reaches the whole process group, but the parent decides when to end its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent is gone or no longer listens
        for job in iter(connection.recv, None):
            with sigterm_leaves(), closing(_steps_and_error(job)) as steps:
                for step in steps:
                    connection.send(step)
            connection.send(None)


def _steps_and_error(job: Any) -> Generator[Any]:
    """Yield a job's steps and, if it fails, the error in a form that any process can read."""
    try:
        with closing(job.steps()) as steps:
            yield from steps
    except sb.SelectiveBackpropError as error:
        yield error
    except Exception as error:  # a user's model may raise anything
        trace = "".join(traceback.format_exception(error))
        yield sb.RecordError(f"{job.name}: {trace}")


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
