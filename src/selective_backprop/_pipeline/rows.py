"""Rows in the pipeline, the position of their consumer, and what resuming there needs.

`pack_batch` packs these tuples into saved states.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from selective_backprop._batches.structure import Layout, cut_rows
from selective_backprop._core.isolation import RandomStreams, kept_random_streams
from selective_backprop._core.options import NamedOption
from selective_backprop._core.types import Float32

COUNT = attrgetter("count")
NO_INDICES = torch.empty(0, dtype=torch.int64)
Known = Float32[Tensor, " example"]  # scores; NaN if an example must be scored


class Leftovers(NamedOption):
    """What happens to rows that are left over at an epoch's end, too few to fill a batch.

    `CARRY` keeps them for the next epoch. `DROP` discards them. `FLUSH` trains on them in a shorter
    batch; where some still wait for selection, it selects from these first.
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
    features: Tensor | None = None  # `[row, feature]`, if the selector uses them

    def cut(self, start: int, stop: int, layout: Layout) -> "Rows":
        rows = slice(start, stop)
        return Rows(
            self.batch[rows] if is_keys(self.batch) else cut_rows(self.batch, layout, start, stop),
            stop - start,
            None if self.indices is None else self.indices[rows],
            None if self.scores is None else self.scores[rows],
            None if self.weights is None else self.weights[rows],
            features=None if self.features is None else self.features[rows],
        )


def is_keys(batch: Any) -> bool:
    """Return whether a batch is one column of numbers, as the keys of examples to load are."""
    return type(batch) is Tensor and batch.ndim == 1 and batch.layout is torch.strided


@dataclass(frozen=True)
class Shape:
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
        counts = self.candidates, self.rows
        waiting, chosen = ((Rows(None, count),) if count else () for count in counts)
        return BufferState(waiting, chosen)

    def after_epoch(self, leftovers: Leftovers, more: int = 0) -> "BufferState":
        """Return what is kept after an epoch; if not `CARRY`, drop all rows, and `more` besides."""
        if leftovers is Leftovers.CARRY:
            return self
        dropped = self.dropped + self.candidates + self.rows + more
        return self._replace(waiting=(), chosen=(), dropped=dropped)


class Cursor(NamedTuple):
    """The consumer's position, whatever workers have prefetched; each batch carries its own."""

    epoch: int = -1  # -1 before the first
    candidates: int = 0  # examples of the epoch that have been drawn as candidates
    drawn: int = 0  # candidate batches of the epoch that have been drawn
    buffer: BufferState = BufferState()  # indices that wait, if selected before they are loaded
    unscored: Tensor = NO_INDICES  # indices that wait to be loaded and scored
    plain: bool = False  # whether the index buffer hands out rows that were not selected
    digest: int = 0  # CRC-32 of the indices that have been drawn in the epoch
    exempt: int = 0  # how many groups of examples need no scoring at the epoch's end


class EpochStart(NamedTuple):
    """How an epoch began; the fields after `held` are set only if it is to be continued."""

    epoch: int
    counted: dict[str, Any]  # the counts so far, by the names of `Stats`
    index_buffer: BufferState = BufferState()  # of numbers of indices, not yet loaded
    row_buffer: BufferState = BufferState()  # of numbers of rows
    unscored: int = 0  # indices that wait to be loaded and scored
    held: int = 0  # rows of a batch kept when another rank ended an epoch; this batch goes first
    # The states of the global random streams and of the sampler's generators that its order was
    # drawn from; None if none was drawn.
    streams: tuple[RandomStreams, list[Tensor]] | None = None
    stream: dict[str, Any] | None = None  # a stream's own state, if it has one
    known: Known | None = None  # scores that it draws by; None without any
    exempt: Tensor = NO_INDICES  # examples that need no scoring at its end
    # How far workers let its order be drawn: candidate batches, and the CRC-32 of their indices.
    reach: tuple[int, int] = 0, 0

    @property
    def waiting(self) -> int:
        queues = *self.index_buffer[:2], *self.row_buffer[:2]
        return sum(rows.count for queue in queues for rows in queue) + self.unscored + self.held


def generators_of(*parts: Any) -> list[torch.Generator]:
    """Return the generators that loaders or samplers hold, or that the samplers inside hold."""
    found: dict[int, torch.Generator] = {}
    for part in parts:
        while part is not None:
            held = getattr(part, "__dict__", {}).values()
            found |= {id(value): value for value in held if isinstance(value, torch.Generator)}
            batches = getattr(part, "batch_sampler", None)
            part = getattr(part, "sampler", None) if batches is None else batches
    return list(found.values())


def put_back(states: list[Tensor], part: Any) -> None:
    held = generators_of(part)
    if len(held) == len(states):  # a sampler that makes its generator late also seeds it
        for generator, state in zip(held, states, strict=True):
            generator.set_state(state)


@contextmanager
def kept_streams(loader: DataLoader[Any], device: torch.device | None) -> Generator[None]:
    """Run the body, then restore every random stream that loading or training draws from."""
    held = generators_of(loader, loader.dataset)
    states: list[Tensor] = [each.get_state() for each in held]
    try:
        with kept_random_streams(device):
            yield
    finally:
        for generator, state in zip(held, states, strict=True):
            generator.set_state(state)
