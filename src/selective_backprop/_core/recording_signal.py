"""The signal that ends the recording of a selection pass.

Scorers send it and activation reuse listens, so that neither imports the other.
"""

from collections.abc import Callable
from contextvars import ContextVar

on_stop: ContextVar[Callable[[], None] | None] = ContextVar("on_stop", default=None)


def stop_recording() -> None:
    """Stop recording the running selection pass: what follows is no part of a training forward."""
    if (stop := on_stop.get()) is not None:
        stop()
