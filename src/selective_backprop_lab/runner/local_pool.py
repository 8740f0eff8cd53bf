"""The engine of this machine: one process, or several side by side.

`concurrent.futures.ProcessPoolExecutor` and joblib's loky cannot replace it. Both return a job's
result only at its end. Steps would need a queue that all workers share, and a killed worker may
leave its lock taken. On Ctrl-C, the first waits for running jobs, and the second kills them.
Neither gives workers time for a last checkpoint, or ends workers whose parent was killed.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from selective_backprop_lab.runner.engine import JobT, killed, steps_and_error
from selective_backprop_lab.training.stopping import sigterm_leaves
from selective_backprop_lab.training.threads import limit_threads

PATIENCE = 30.0  # seconds that a process gets for its last checkpoint


def run_local(
    work: Sequence[JobT], *, jobs: int, threads: int, watch: Callable[[JobT, Any], None]
) -> None:
    """Carry out jobs as an `Engine` does; with `jobs` of 2 or more, each in its own process."""
    if jobs == 1 or len(work) < 2:
        for job in work:
            with closing(job.steps()) as steps:
                for step in steps:
                    watch(job, step)
        return
    # Forking a process whose libraries have started threads may hang.
    context = multiprocessing.get_context("spawn")
    pending = iter(work)
    running: dict[Any, JobT] = {}
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
                    raise killed(list(running.values())) from error
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
    """Carry out the jobs that arrive in this process, until None arrives."""
    # Ctrl-C reaches the whole process group, but the parent decides when to end its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent is gone or no longer listens
        for job in iter(connection.recv, None):
            with sigterm_leaves(), closing(steps_and_error(job)) as steps:
                for step in steps:
                    connection.send(step)
            connection.send(None)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
