"""One pass over a loader: from which thread its batches may be taken, and when it ends."""

import inspect
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from selective_backprop._core.errors import LoaderError


class Epoch(Iterator[Any]):
    """An iterator over one epoch, which begins at the first `next`.

    Only the thread `scores_in` may take batches, since scoring changes the model's modes and the
    random streams for a moment. If it is None, nothing is scored, and the thread that takes the
    first batch must take all.
    """

    def __init__(self, begin: Callable[["Epoch"], Generator[Any]], scores_in: int | None) -> None:
        self._begin = begin
        self._batches: Generator[Any] | None = None
        self._scores_in = scores_in
        self._thread = 0
        self._superseded = False

    def __next__(self) -> Any:
        if self._superseded:
            raise LoaderError(
                "another iteration of this SelectiveLoader has begun since. Two at a time would "
                "share waiting rows. Wrap the loader twice to iterate it twice."
            )
        thread = threading.get_ident()
        if self._scores_in not in (None, thread):
            raise LoaderError(
                f"thread {threading.current_thread().name!r} asked for a batch, but the loader was "
                "built in another one. This strategy scores with the model, which would switch "
                "modes and random streams under the thread that trains. To read ahead, give the "
                "data loader workers (num_workers=, prefetch_factor=) in place of a thread. To "
                "train in another thread, build the SelectiveLoader in it."
            )
        if self._batches is None:
            self._thread = thread
            self._batches = self._begin(self)
        elif thread != self._thread:
            raise LoaderError(
                "next() was called from a second thread, but one thread must take all batches of "
                "an epoch"
            )
        return next(self._batches)

    def close(self) -> None:
        """End the pass, because another begins."""
        if self._batches is not None:
            # a pass that ended by itself goes on raising StopIteration, not an error
            self._superseded = inspect.getgeneratorstate(self._batches) != inspect.GEN_CLOSED
            self._batches.close()
