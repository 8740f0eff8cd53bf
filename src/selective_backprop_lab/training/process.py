"""The process: its threads, random streams, and signals, which stop it when nothing is lost."""

import importlib
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor


class Stop:
    """Whether Ctrl-C or SIGTERM asked the process to stop while `asked_to_stop` ran."""

    asked: int | None = None  # the number of the latest signal

    def note(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; a second Ctrl-C stops the process at once.

        A second SIGTERM does not: `timeout` sends one to a process and another to its group.
        """
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


@contextmanager
def sigterm_leaves() -> Generator[None]:
    """Let SIGTERM end the body in good order, as Ctrl-C does, so that open files are closed."""
    with _handled(leave, signal.SIGTERM):
        yield


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

    @contextmanager
    def apart(self) -> Generator[None]:
        """Let the body draw from the global streams, then restore them."""
        with torch.random.fork_rng(self._gpus):
            yield

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run's streams, also within `own`, for `load_state_dict`."""
        return {"states": self._now() if self._in_use else list(self._states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`; do not call this within `own`."""
        self._states = [stream.cpu() for stream in state["states"]]

    def _now(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]
