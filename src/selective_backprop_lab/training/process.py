"""Processes: their threads, random streams, and signals, which stop them when nothing is lost."""

import importlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, NoReturn

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

import selective_backprop as sb

PATIENCE = 30.0  # seconds that a process gets for its last checkpoint


class Stop:
    """Whether Ctrl-C or SIGTERM asked the process to stop while `asked_to_stop` ran."""

    asked: int | None = None  # the number of the latest signal

    def note(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; a second Ctrl-C stops at once, but no SIGTERM: `timeout` sends two."""
        again, self.asked = self.asked, number
        if again and number == signal.SIGINT:
            self.leave()

    def leave(self) -> NoReturn:
        """Raise `KeyboardInterrupt` after Ctrl-C, and `SystemExit` after SIGTERM."""
        if self.asked == signal.SIGTERM:
            leave(signal.SIGTERM, None)
        raise KeyboardInterrupt


@contextmanager
def asked_to_stop() -> Generator[Stop]:
    """Note signals in the body instead of stopping at once."""
    stop = Stop()
    with _handled(stop.note, signal.SIGINT, signal.SIGTERM):
        yield stop


def sigterm_leaves() -> AbstractContextManager[None]:
    """Let SIGTERM end the body in good order, as Ctrl-C does, so that open files are closed."""
    return _handled(leave, signal.SIGTERM)


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit with the status that a shell uses for a signal; later SIGTERMs change nothing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


@contextmanager
def _handled(handler: "signal._HANDLER", *numbers: signal.Signals) -> Generator[None]:
    """Handle signals in the body. Ignored signals stay ignored; other threads handle none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    taken = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in taken:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in taken.items():
            signal.signal(number, old)


def limit_threads(threads: int) -> None:
    """Let each operation of this process use `threads` threads."""
    torch.set_num_threads(threads)
    # Libraries that are loaded later would not be limited, and waiting threads make a Gaussian
    # process ten times slower. scikit-learn also loads SciPy's linear algebra.
    importlib.import_module("sklearn")
    threadpool_limits(threads)


class RandomStreams:
    """torch's random streams for one run, also on its GPU, separate from the process's own."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._gpus = [device] if device.type == "cuda" else []
        self._states = [
            torch.Generator(place).manual_seed(seed).get_state()
            for place in (torch.device("cpu"), *self._gpus)
        ]
        self._in_use = False

    @contextmanager
    def own(self) -> Generator[None]:
        """Let the body draw from the run's streams; the global streams stay unchanged."""
        with self.apart():
            torch.set_rng_state(self._states[0])
            for gpu, state in zip(self._gpus, self._states[1:], strict=True):
                torch.cuda.set_rng_state(state, gpu)
            self._in_use = True
            try:
                yield
            finally:
                self._states, self._in_use = self._now(), False

    def apart(self) -> AbstractContextManager[None]:
        """Let the body draw from the global streams, then restore them."""
        return torch.random.fork_rng(self._gpus)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run's streams, also within `own`, for `load_state_dict`."""
        return {"states": self._now() if self._in_use else list(self._states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`; do not call this within `own`."""
        self._states = [stream.cpu() for stream in state["states"]]

    def _now(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]


def run_local(
    work: Sequence[Any], *, jobs: int, threads: int, watch: Callable[[Any, Any], None]
) -> None:
    """Carry out jobs in order, `jobs` at a time in own processes; `watch` each step.

    Existing pools give workers no time for a last checkpoint, and do not end with their parent.
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
