"""The signal that ends the recording of a selection pass.

Scorers send it and activation reuse listens, so that neither imports the other.
"""

from collections.abc import Callable
from contextvars import ContextVar

on_stop: ContextVar[Callable[[], None] | None] = ContextVar("on_stop", default=None)


def stop_recording() -> None:
    """Stop recording the running selection pass, if it is being recorded.

    A scorer calls this where its operations begin to differ from those of a training forward:
    recordings of later operations could not be reused.
    """
    stop = on_stop.get()
    if stop is not None:
        stop()
