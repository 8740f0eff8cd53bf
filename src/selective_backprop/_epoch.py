"""One pass over a loader: by one thread, and only until another pass begins."""

import inspect
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from selective_backprop._errors import LoaderError


class Epoch(Iterator[Any]):
    """An iterator over one epoch, which begins at the first `next`.

    Args:
        begin: called once, with this pass; returns its batches.
    """

    def __init__(self, begin: Callable[["Epoch"], Generator[Any]]) -> None:
        self._begin = begin
        self._batches: Generator[Any] | None = None
        self._thread = 0
        self._superseded = False

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            LoaderError: if another pass has begun since, or another thread asks.
        """
        if self._superseded:
            raise LoaderError(
                "another iteration of this SelectiveLoader has begun since; two at a time would "
                "share rows that wait. Wrap the loader twice to iterate it twice."
            )
        if self._batches is None:
            self._thread = threading.get_ident()
            self._batches = self._begin(self)
        elif threading.get_ident() != self._thread:
            raise LoaderError(
                "next() was called from a second thread; scoring runs the model, so only the "
                "thread that trains may ask for batches"
            )
        return next(self._batches)

    def close(self) -> None:
        """End the pass, because another begins."""
        if self._batches is not None:
            # one that ended by itself stays ended, and is not complained about
            self._superseded = inspect.getgeneratorstate(self._batches) != inspect.GEN_CLOSED
            self._batches.close()
