"""One pass over a loader: which thread may take its batches, and when it ends."""

import inspect
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from selective_backprop._core.errors import LoaderError


class Epoch(Iterator[Any]):
    """An iterator over one epoch, which begins when the first batch is taken.

    Only the thread `scores_in` may take batches, because scoring changes the model's mode and the
    random generators for a moment. If `scores_in` is None, nothing is scored, and the thread that
    takes the first batch must take all.
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
                "another iteration of this SelectiveLoader has begun, so this one has ended: both "
                "would share the rows that wait for a batch. To iterate twice at a time, build two "
                "SelectiveLoaders."
            )
        thread = threading.get_ident()
        if self._scores_in not in (None, thread):
            raise LoaderError(
                f"thread {threading.current_thread().name!r} asked for a batch, but the loader was "
                "built in another thread. This strategy scores with the model, which changes the "
                "model's mode and the random generators for a moment, so it must run in the thread "
                "that trains. To read ahead, give the data loader workers (num_workers=, "
                "prefetch_factor=) instead of using a thread. To train in another thread, build "
                "the SelectiveLoader in it."
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
        """End this epoch, because another begins."""
        if self._batches is not None:
            # an epoch that ended by itself goes on raising StopIteration, not an error
            self._superseded = inspect.getgeneratorstate(self._batches) != inspect.GEN_CLOSED
            self._batches.close()
