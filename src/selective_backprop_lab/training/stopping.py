"""Leaving when asked to: at the next moment at which nothing is lost, and not in between."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Stop:
    """Whether the process was asked to leave, by Ctrl-C or SIGTERM, while `asked_to_stop` ran."""

    def __init__(self) -> None:
        self._signal: int | None = None

    @property
    def asked(self) -> bool:
        """Whether it was."""
        return self._signal is not None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal; a second one leaves at once."""
        again, self._signal = self.asked, number
        if again:
            self.leave()

    def leave(self) -> NoReturn:
        """Leave as the signal asks to: `KeyboardInterrupt` for Ctrl-C, else `SystemExit`."""
        if self._signal == signal.SIGTERM:
            leave(signal.SIGTERM, None)
        raise KeyboardInterrupt


@contextmanager
def asked_to_stop() -> Generator[Stop]:
    """Take note of signals in the body instead of leaving."""
    stop = Stop()
    with _handled(stop.note, signal.SIGINT, signal.SIGTERM):
        yield stop


@contextmanager
def sigterm_leaves() -> Generator[None]:
    """Let SIGTERM end the body in good order, as Ctrl-C does: what is open is closed."""
    with _handled(leave, signal.SIGTERM):
        yield


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """Leave with the status that a shell gives a signal."""
    raise SystemExit(128 + number)


@contextmanager
def _handled(handler: "signal._HANDLER", *numbers: signal.Signals) -> Generator[None]:
    """Handle signals in the body; ignored ones stay so, and only the main thread may take any."""
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
