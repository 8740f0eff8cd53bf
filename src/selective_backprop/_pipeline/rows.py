"""Rows in the pipeline, and the state of a buffer of them."""

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._batches.serialization import (
    on_device,
    pack_batch,
    pack_column,
    unpack_batch,
)
from selective_backprop._batches.structure import Layout, count_rows, cut_rows
from selective_backprop._core.options import NamedOption
from selective_backprop._core.saved_state import FINITE, FLOATS, Saved

COUNT = attrgetter("count")


class Leftovers(NamedOption):
    """What happens to an incomplete window or batch at the end of an epoch.

    `CARRY` keeps it for the next epoch, `FLUSH` draws a proportionally short batch, `DROP`
    discards it.
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
    weights: Tensor | None = None  # None where all weigh 1
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

    def scored(self, scores: Tensor | None) -> "Rows":
        """Return the rows with these scores, or without scores."""
        return Rows(self.batch, self.count, self.indices, scores, self.weights)


def is_keys(batch: Any) -> bool:
    """Return whether a batch is a mere column, as keys of examples to be loaded are."""
    return type(batch) is Tensor and batch.ndim == 1 and batch.layout is torch.strided


@dataclass(frozen=True)
class Shape:
    """The sizes of training batches and windows."""

    batch_size: int | None  # of a full training batch; None passes every batch on as it comes
    window: int | None  # candidates per exact draw; None draws from each candidate batch
    unchanged: bool = True  # an unselected candidate batch may pass as it is, even a short one
    keeps_everything: bool = False  # selected candidates are passed on like unselected ones


class BufferState(NamedTuple):
    """What a selection buffer holds: immutable, cheap to keep, and enough to restore it."""

    waiting: tuple[Rows, ...] = ()  # candidates that wait for a full window
    chosen: tuple[Rows, ...] = ()  # chosen rows that wait for a full training batch
    dropped: int = 0  # rows dropped so far
    windows: int = 0  # windows of the epoch that have been drawn from

    @property
    def candidates(self) -> int:
        """How many candidates wait."""
        return sum(map(COUNT, self.waiting))

    @property
    def rows(self) -> int:
        """How many chosen rows wait."""
        return sum(map(COUNT, self.chosen))

    def after_epoch(self, leftovers: Leftovers, more: int = 0) -> "BufferState":
        """Return what is carried on; other leftovers, and `more` rows besides, are dropped."""
        if leftovers is Leftovers.CARRY:
            return self
        dropped = self.dropped + self.candidates + self.rows + more
        return self._replace(waiting=(), chosen=(), dropped=dropped)

    def pack(self) -> dict[str, Any]:
        """Return the state in plain containers, which any file format can hold."""
        return {
            "waiting": [_columns(rows) for rows in self.waiting],
            "chosen": [_columns(rows) for rows in self.chosen],
            "dropped": self.dropped,
            "windows": self.windows,
        }

    @classmethod
    def unpack(
        cls,
        saved: Saved,
        *,
        examples: int | None,
        layout: Layout | None = None,
        keys: bool = False,
        device: torch.device | None,
    ) -> "BufferState":
        """Return the state that `pack()` was called on, if it is not damaged.

        Indices are below `examples`, if given. Rows are counted by `layout`, if given, and moved
        to `device`; with `keys` they are keys of examples that are not loaded yet.
        """
        waiting, chosen, dropped, windows = saved.fields("waiting", "chosen", "dropped", "windows")

        def rows(queue: Saved) -> tuple[Rows, ...]:
            return tuple(_rows(each, examples, layout, keys, device) for each in queue.items())

        return cls(rows(waiting), rows(chosen), dropped.whole(), windows.whole())


class Waits(NamedTuple):
    """How much waits in a buffer."""

    candidates: int = 0  # for a full window
    rows: int = 0  # chosen ones, for a full training batch

    @classmethod
    def of(cls, state: BufferState) -> "Waits":
        """Count what a buffer holds."""
        return cls(state.candidates, state.rows)


def _columns(rows: Rows) -> tuple[Any, ...]:
    columns = (rows.indices, rows.scores, rows.weights)
    return pack_batch(rows.batch), rows.count, *map(pack_column, columns)


def _rows(
    saved: Saved,
    examples: int | None,
    layout: Layout | None,
    keys: bool,
    device: torch.device | None,
) -> Rows:
    packed, number, indices, scores, weights = saved.items(5)
    count = number.whole(1)
    with packed.inside():
        batch = unpack_batch(packed.value)
        if layout is not None:
            count_rows(batch, layout, count)

    def read_indices(column: Saved) -> Tensor:
        most = math.inf if examples is None else examples - 1
        least = -math.inf if examples is None else 0  # a data set may count from its end
        return column.tensor(torch.int64, shape=(count,), least=least, most=most)

    if keys and isinstance(batch, Tensor):
        read_indices(packed)
    elif keys and (not isinstance(batch, list) or len(batch) != count):
        raise packed.refuse(f"{count} keys")
    if examples is not None and not keys and indices.value is None:
        raise indices.refuse(f"the indices of {count} examples")
    columns = (
        indices.maybe(read_indices),
        scores.maybe(lambda each: each.tensor(*FLOATS, shape=(count,))),
        weights.maybe(
            lambda each: each.tensor(*FLOATS, shape=(count,), least=-FINITE, most=FINITE)
        ),
    )
    batch, columns = on_device((batch, columns), device)
    return Rows(batch, count, *columns)
