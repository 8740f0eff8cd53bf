"""All ranks take a training batch at the same step, so that all take equally many.

A rank that holds a batch, or has none left, tells the others so in a message, called a head. All
ranks decide from the same heads: they yield their batches, or all end the epoch. Ranks wait for one
another only when an epoch opens, once per step, and when all have ended an epoch. A rank that fails
says so at the next exchange, so none waits for ever. This assumes that all ranks iterate the same
loaders in the same order, and run a scoring forward pass that is a collective equally often.

With `overlaps`, if all ranks have equally many batches in an epoch, a rank yields its batch at once
and receives the others' heads and scores before the next draw. The choices are the same.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import TypeVar

from selective_backprop._core.errors import LoaderError
from selective_backprop._distributed.group import Exchange, Head, Status
from selective_backprop._memory.history import SharedHistory
from selective_backprop._pipeline.rows import Rows

Done = TypeVar("Done")


class LockstepBatches:
    def __init__(
        self,
        exchange: Exchange,
        history: SharedHistory | None,
        position: Callable[[], int] = int,
        *,
        overlaps: bool = False,
    ) -> None:
        self._exchange, self.history, self.overlaps = exchange, history, overlaps
        self.alike = False  # whether all ranks know that they have equally many batches
        self.met = False  # else ranks may expect messages of different lengths
        self._arriving: Callable[[], list[Status]] | None = None
        self._epoch = self._exchanged = 0
        self._position = position  # how many candidate batches this rank has drawn
        self.drawn = 0  # how many every rank had drawn at the last exchange
        self.held: Rows | None = None  # ready when another rank ended the epoch
        self.cut = False  # whether another rank ended the last epoch before this one was done

    def open(self, epoch: int) -> None:
        self._epoch, self._exchanged, self.cut = epoch, 0, False
        if self.met:
            self.swap(Status.OPENING)

    def take(
        self,
        begin: Callable[[], None],
        batches: Generator[Rows],
        finish: Callable[[], None] | None = None,
    ) -> Iterator[Rows]:
        """Call `begin`, then yield this rank's batches while every rank has one, a held one first.

        `finish`, passed by all ranks or none, is called if another rank ends the epoch, while
        `batches` is still open. An error of the three is told to the others, then raised unchanged.
        """
        with closing(batches):
            self.attempt(begin)
            while True:
                rows = self.held
                if rows is None:
                    rows = self.attempt(partial(next, batches, None))
                self.held = rows  # kept even if the exchange fails
                if rows is not None and self.overlaps and self.alike:
                    self._arriving = self._send(Status.READY)
                    self.held = None
                    try:
                        yield rows
                    finally:
                        self.settle()
                    continue
                statuses = self.swap(Status.ENDED if rows is None else Status.READY)
                if rows is None or Status.ENDED in statuses:
                    self.cut = rows is not None
                    if rows is not None:  # a saved state does not keep `plain` either
                        self.held = rows._replace(plain=False)
                    if finish is not None:
                        if self.cut:
                            self.attempt(finish)
                        self.swap(Status.ENDED)
                    return
                self.held = None
                yield rows

    def attempt(self, work: Callable[[], Done]) -> Done:
        try:
            return work()
        except Exception:
            with suppress(LoaderError):  # show the error of `work`, not the exchange's
                self.swap(Status.FAILED)
            raise

    def settle(self) -> None:
        """Receive what other ranks sent with the running batch; raise if one had fewer batches."""
        arriving, self._arriving = self._arriving, None
        if arriving is not None and Status.ENDED in arriving():
            raise LoaderError(
                "a rank yielded fewer batches than it had announced. Leave out overlap=True"
            )

    def swap(self, status: Status) -> list[Status]:
        return self._send(status)()

    def _send(self, status: Status) -> Callable[[], list[Status]]:
        own = [] if self.history is None else self.history.retract()
        head = Head(status, self._epoch, self._exchanged, self._position())
        self._exchanged += 1
        arrive = self._exchange.send(head, own)

        def receive() -> list[Status]:
            heads, scores = arrive()
            self.drawn = min(head.drawn for head in heads)
            if self.history is not None and status is not Status.FAILED:
                self.history.file_all(scores)
            return [head.status for head in heads]

        return receive
