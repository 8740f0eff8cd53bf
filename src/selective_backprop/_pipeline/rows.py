"""Rows in the pipeline, and the state of a buffer of them."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._batches.structure import Layout, cut_rows
from selective_backprop._core.options import NamedOption

COUNT = attrgetter("count")


class Leftovers(NamedOption):
    """What happens to rows that are left over at an epoch's end, too few to fill a batch.

    `CARRY` keeps them for the next epoch. `DROP` discards them. `FLUSH` trains on them in a shorter
    batch, after selecting from those that still wait for selection.
    """

    CARRY = "carry"
    FLUSH = "flush"
    DROP = "drop"


class Rows(NamedTuple):
    """Some rows in the pipeline: a batch, or the keys of a batch that is not loaded yet."""

    batch: Any
    count: int
    indices: Tensor | None = None  # in the data set, `[row]`; None if unknown
    scores: Tensor | None = None
    weights: Tensor | None = None  # None if all weigh 1
    plain: bool = False  # a training batch made without a draw

    def cut(self, start: int, stop: int, layout: Layout) -> "Rows":
        """Return rows `start` to `stop`, without copying tensors."""
        rows = slice(start, stop)
        return Rows(
            self.batch[rows] if is_keys(self.batch) else cut_rows(self.batch, layout, start, stop),
            stop - start,
            None if self.indices is None else self.indices[rows],
            None if self.scores is None else self.scores[rows],
            None if self.weights is None else self.weights[rows],
        )


def is_keys(batch: Any) -> bool:
    """Return whether a batch is one column of numbers, as the keys of examples to load are."""
    return type(batch) is Tensor and batch.ndim == 1 and batch.layout is torch.strided


@dataclass(frozen=True)
class Shape:
    """The sizes of training batches and windows."""

    batch_size: int | None  # of a full training batch; None passes every batch on as it comes
    window: int | None  # candidates per exact draw; None draws from each candidate batch
    unchanged: bool = True  # an unselected candidate batch may pass as it is, even a short one
    keeps_everything: bool = False  # selected candidates are passed on like unselected ones


class BufferState(NamedTuple):
    """The contents of a selection buffer: immutable, cheap to keep, and enough to restore it."""

    waiting: tuple[Rows, ...] = ()  # candidates that wait for a full window
    chosen: tuple[Rows, ...] = ()  # chosen rows that wait for a full training batch
    dropped: int = 0  # rows dropped so far
    windows: int = 0  # windows of the epoch that have been drawn from
    filed: bool = False  # whether scores of the next window are in the history: its draw failed

    @property
    def candidates(self) -> int:
        return sum(map(COUNT, self.waiting))

    @property
    def rows(self) -> int:
        return sum(map(COUNT, self.chosen))

    @property
    def counted(self) -> "BufferState":
        """The same queues of mere numbers of rows."""
        counts = self.candidates, self.rows
        waiting, chosen = ((Rows(None, count),) if count else () for count in counts)
        return BufferState(waiting, chosen)

    def after_epoch(self, leftovers: Leftovers, more: int = 0) -> "BufferState":
        """Return what is kept after an epoch; if not `CARRY`, drop all rows, and `more` besides."""
        if leftovers is Leftovers.CARRY:
            return self
        dropped = self.dropped + self.candidates + self.rows + more
        return self._replace(waiting=(), chosen=(), dropped=dropped)
