"""The signal that ends the recording of a selection pass.

Scorers give it, and the reuse of activations listens: neither need know the other.
"""

from collections.abc import Callable
from contextvars import ContextVar

on_stop: ContextVar[Callable[[], None] | None] = ContextVar("on_stop", default=None)


def stop_recording() -> None:
    """Let no more of the selection pass that is being recorded be recorded, if one is.

    What follows in it is nothing that a training forward will compute: that has other operations
    from here on.
    """
    stop = on_stop.get()
    if stop is not None:
        stop()
