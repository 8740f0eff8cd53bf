"""One pass over a loader: by one thread, and only until another pass begins."""

import inspect
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from selective_backprop._core.errors import LoaderError


class Epoch(Iterator[Any]):
    """An iterator over one epoch, which begins at the first `next`.

    Args:
        begin: called once, with this pass; returns its batches.
        scores_in: the thread that alone may ask, since scoring changes the model's modes and
            the random streams for a moment; None where nothing is scored, and the thread that
            asks first is the one.
    """

    def __init__(
        self, begin: Callable[["Epoch"], Generator[Any]], scores_in: int | None = None
    ) -> None:
        self._begin = begin
        self._batches: Generator[Any] | None = None
        self._scores_in = scores_in
        self._thread = 0
        self._superseded = False

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            LoaderError: if another pass has begun since, another thread has asked before, or
                this one must not.
        """
        if self._superseded:
            raise LoaderError(
                "another iteration of this SelectiveLoader has begun since; two at a time would "
                "share rows that wait. Wrap the loader twice to iterate it twice."
            )
        thread = threading.get_ident()
        if self._scores_in not in (None, thread):
            raise LoaderError(
                f"thread {threading.current_thread().name!r} asked for a batch, and the loader was "
                "built in another one. This strategy scores with the model, which would switch "
                "modes and random streams under the thread that trains. To read ahead, give the "
                "data loader workers (num_workers=, prefetch_factor=) in place of a thread; to "
                "train in another thread, build the SelectiveLoader in it."
            )
        if self._batches is None:
            self._thread = thread
            self._batches = self._begin(self)
        elif thread != self._thread:
            raise LoaderError(
                "next() was called from a second thread; one thread takes all batches of an epoch"
            )
        return next(self._batches)

    def close(self) -> None:
        """End the pass, because another begins."""
        if self._batches is not None:
            # one that ended by itself stays ended, and is not complained about
            self._superseded = inspect.getgeneratorstate(self._batches) != inspect.GEN_CLOSED
            self._batches.close()
