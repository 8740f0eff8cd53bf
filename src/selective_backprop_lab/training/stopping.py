"""Stop when a signal asks for it, but only at a moment at which nothing is lost."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Stop:
    """Whether Ctrl-C or SIGTERM asked the process to stop while `asked_to_stop` ran."""

    def __init__(self) -> None:
        self._signal: int | None = None

    @property
    def asked(self) -> bool:
        """Whether the process was asked to stop."""
        return self._signal is not None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; a second Ctrl-C stops the process at once.

        A second SIGTERM does not: `timeout` sends one to a process and another to its group.
        """
        again, self._signal = self.asked, number
        if again and number == signal.SIGINT:
            self.leave()

    def leave(self) -> NoReturn:
        """Raise `KeyboardInterrupt` after Ctrl-C, and `SystemExit` after SIGTERM."""
        if self._signal == signal.SIGTERM:
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
