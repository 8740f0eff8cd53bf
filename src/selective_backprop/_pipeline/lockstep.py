"""Several ranks take training batches in turns, so that all of them take equally many.

Each `next()` of a loader is one turn: a rank works by itself until it holds a training batch,
or finds that its epoch has none left, and then tells the others which of the two it is. If all
are ready, each yields its batch. If any has ended, all end the epoch, and whoever held a batch
keeps it. Everybody decides from the same gathered heads, so all decide the same.

Ranks cannot wait for one another for ever. A rank sends and receives at two places alone: when
an epoch opens, and once per turn. What it does there depends on nothing but what all ranks were
told before: whether a turn follows another, or an opening a turn, is decided by gathered
messages, and how many messages an opening has, and how long they are, by gathered numbers. By
induction every rank runs through the same sequence of exchanges, whatever its shard, its draws
and its workers do, and the n-th exchange of one rank meets the n-th of all others. Between two
exchanges a rank calls nothing that waits for another one, and what goes wrong while it makes a
batch is told at the next exchange before it is raised.

That takes for granted that all ranks iterate the same loaders in the same order and break off
after the same batches, as they must for the training's own collectives; that reading, collating
and scoring a batch comes to an end; and that the forward pass that scores is no collective
itself, or ranks have equally many (`has_collective_forward`, and again at each opening). A rank
that does not keep to it, as one that dies, cannot be waited for in vain either: the process group's
timeout ends the exchange with an error. Ranks that broke off after different batches are
noticed by the heads, which number epochs and turns.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from selective_backprop._core.errors import LoaderError
from selective_backprop._distributed.messages import Exchange, Head, Status
from selective_backprop._memory.shared_history import SharedHistory
from selective_backprop._pipeline.rows import Rows

Done = TypeVar("Done")


class LockstepBatches:
    """Let ranks take their training batches together.

    Args:
        exchange: how they talk.
        history: what they share; None where no scores are ranked.

    Attributes:
        held: a batch that this rank had ready when another one ended the epoch.
        cut: whether the last epoch was ended by another rank, before this one was through.
    """

    def __init__(self, exchange: Exchange, history: SharedHistory | None) -> None:
        self._exchange = exchange
        self._history = history
        self._epoch = self._turn = 0
        self.held: Rows | None = None
        self.cut = False

    def open(self, epoch: int, *, met: bool) -> None:
        """Begin an epoch together.

        Args:
            epoch: its number.
            met: whether the ranks have exchanged anything before. If not, they may have been
                built for messages of different lengths, and nothing is sent here.

        Raises:
            LoaderError: if a rank is somewhere else, or does not answer.
        """
        self._epoch, self._turn, self.cut = epoch, 0, False
        if met:
            self._swap(Status.OPENING)

    def take(self, begin: Callable[[], None], batches: Generator[Rows]) -> Iterator[Rows]:
        """Yield this rank's batches for as long as every rank has one.

        A batch that is held goes first.

        Args:
            begin: called once, before anything else.
            batches: what this rank makes by itself; closed at the end.

        Raises:
            LoaderError: if another rank has failed, is out of step, or does not answer. What
                goes wrong in `begin` or `batches` is raised as it is, and the others are told.
        """
        with closing(batches):
            self._attempt(begin)
            while True:
                rows = self.held
                if rows is None:
                    rows = self._attempt(partial(next, batches, None))
                self.held = rows  # not lost, whatever happens now
                told = self._swap(Status.ENDED if rows is None else Status.READY)
                if rows is None or Status.ENDED in told:
                    self.cut = rows is not None
                    if rows is not None:  # as it would be if it were saved
                        self.held = replace(rows, plain=False)
                    return
                self.held = None
                yield rows

    def go_on(self, held: Rows | None) -> None:
        """Hold a batch that was ready when a state was saved."""
        self.held = held

    def let_go(self) -> int:
        """Let go of the batch that is held, if there is one; return how many rows it has."""
        held, self.held = self.held, None
        return 0 if held is None else held.count

    def _attempt(self, work: Callable[[], Done]) -> Done:
        try:
            return work()
        except Exception:
            with suppress(LoaderError):  # the first error is the one to see
                self._swap(Status.FAILED)
            raise

    def _swap(self, status: Status) -> list[Status]:
        own = [] if self._history is None else self._history.retract()
        head = Head(status, self._epoch, self._turn)
        self._turn += 1
        told, scores = self._exchange.swap(head, own)
        if self._history is not None and status is not Status.FAILED:
            self._history.settle(scores)
        return told
