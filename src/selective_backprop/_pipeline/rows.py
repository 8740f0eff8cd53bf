"""Rows in the pipeline, and the state of a buffer of them."""

from dataclasses import dataclass, field
from enum import StrEnum
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
from selective_backprop._core.saved_state import FINITE, FLOATS, Saved

COUNT = attrgetter("count")


class Leftovers(StrEnum):
    """What happens to an incomplete window or batch at the end of an epoch.

    `CARRY` keeps it for the next epoch, `FLUSH` draws a proportionally short batch, `DROP`
    discards it.
    """

    CARRY = "carry"
    FLUSH = "flush"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows in the pipeline: a batch, or the keys of a batch that is not loaded yet.

    Attributes:
        batch: the rows themselves.
        count: how many there are.
        indices: their data-set indices, `[row]`, or None if unknown.
        scores: their scores, `[row]`, or None if not scored.
        weights: their weights, `[row]`, or None where all weigh 1.
        plain: whether they are a training batch made without a draw.
    """

    batch: Any
    count: int
    indices: Tensor | None = None
    scores: Tensor | None = None
    weights: Tensor | None = None
    plain: bool = field(default=False, kw_only=True)

    def cut(self, start: int, stop: int, layout: Layout) -> "Rows":
        """Return rows `start` to `stop`, without copying tensors."""
        rows = slice(start, stop)
        return Rows(
            cut_rows(self.batch, layout, start, stop),
            stop - start,
            None if self.indices is None else self.indices[rows],
            None if self.scores is None else self.scores[rows],
            None if self.weights is None else self.weights[rows],
        )

    def scored(self, scores: Tensor | None) -> "Rows":
        """Return the rows with these scores, or without scores."""
        return Rows(self.batch, self.count, self.indices, scores, self.weights)


@dataclass(frozen=True)
class Shape:
    """The sizes of training batches and windows.

    Attributes:
        batch_size: rows of a full training batch; None passes every batch on as it comes.
        window: candidates per exact draw; None draws from each candidate batch.
        unchanged: whether an unselected candidate batch may pass as it is, even a short one.
        keeps_everything: whether selected candidates are passed on like unselected ones.
    """

    batch_size: int | None
    window: int | None
    unchanged: bool = True
    keeps_everything: bool = False


class BufferState(NamedTuple):
    """What a selection buffer holds: immutable, cheap to keep, and enough to restore it.

    Attributes:
        waiting: candidates that wait for a full window.
        chosen: chosen rows that wait for a full training batch.
        dropped: how many rows were dropped so far.
        windows: how many windows of the epoch have been drawn from.
    """

    waiting: tuple[Rows, ...] = ()
    chosen: tuple[Rows, ...] = ()
    dropped: int = 0
    windows: int = 0

    @property
    def candidates(self) -> int:
        """How many candidates wait."""
        return sum(map(COUNT, self.waiting))

    @property
    def rows(self) -> int:
        """How many chosen rows wait."""
        return sum(map(COUNT, self.chosen))

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
        """Return the state that `pack()` was called on.

        Args:
            saved: what it returned.
            examples: size of the data set, which bounds indices; None if any index may occur.
            layout: how rows are counted; None to skip the check of row counts.
            keys: whether rows are keys of examples that are not loaded yet.
            device: where to move the rows, or None to leave them.

        Raises:
            ConfigurationError: if the state is damaged.
        """
        waiting, chosen, dropped, windows = saved.fields("waiting", "chosen", "dropped", "windows")

        def rows(queue: Saved) -> tuple[Rows, ...]:
            return tuple(_rows(each, examples, layout, keys, device) for each in queue.items())

        return cls(rows(waiting), rows(chosen), dropped.whole(), windows.whole())


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
    if keys and isinstance(batch, Tensor):
        _indices(packed, count, examples)
    elif keys and (not isinstance(batch, list) or len(batch) != count):
        raise packed.refuse(f"{count} keys")
    if examples is not None and not keys and indices.value is None:
        raise indices.refuse(f"the indices of {count} examples")
    columns = (
        indices.maybe(lambda each: _indices(each, count, examples)),
        scores.maybe(lambda each: each.tensor(*FLOATS, shape=(count,))),
        weights.maybe(
            lambda each: each.tensor(*FLOATS, shape=(count,), least=-FINITE, most=FINITE)
        ),
    )
    batch, columns = on_device((batch, columns), device)
    return Rows(batch, count, *columns)


def _indices(saved: Saved, count: int, examples: int | None) -> Tensor:
    if examples is None:  # a data set may count from its end
        return saved.tensor(torch.int64, shape=(count,))
    return saved.tensor(torch.int64, shape=(count,), least=0, most=examples - 1)
