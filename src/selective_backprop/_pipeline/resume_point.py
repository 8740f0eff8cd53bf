"""The position of the batches' consumer, the training loop, and what resuming there needs.

`pack_batch` packs these tuples into saved states.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from selective_backprop._core.isolation import RandomStreams, kept_random_streams
from selective_backprop._pipeline.rows import BufferState
from selective_backprop._pipeline.score_memory import Known

NO_INDICES = torch.empty(0, dtype=torch.int64)


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

    def opening(self, epoch: int) -> "Cursor":
        """Return the position where another epoch begins: rows that wait stay, counts are 0."""
        return Cursor(epoch, buffer=self.buffer._replace(windows=0), unscored=self.unscored)


class SamplerRngState(NamedTuple):
    """The states of the global random streams and a sampler's generators at one moment."""

    streams: RandomStreams
    own: list[Tensor]

    @classmethod
    def of(cls, sampler: Any) -> "SamplerRngState":
        own = [generator.get_state() for generator in generators_of(sampler)]
        return cls(RandomStreams.now(), own)

    @contextmanager
    def again(self, sampler: Any) -> Generator[None]:
        """Let the sampler draw from these states in the body; its generators are not reset."""
        put_back(self.own, sampler)
        with kept_random_streams(None):
            self.streams.put_back()
            yield


class EpochStart(NamedTuple):
    """How an epoch began; the fields after `held` are set only if it is to be continued."""

    epoch: int
    counted: dict[str, Any]  # the counts so far, by the names of `Stats`
    index_buffer: BufferState = BufferState()  # of numbers of indices, not yet loaded
    row_buffer: BufferState = BufferState()  # of numbers of rows
    unscored: int = 0  # indices that wait to be loaded and scored
    held: int = 0  # rows of a batch kept when another rank ended an epoch; this batch goes first
    streams: SamplerRngState | None = None  # that its order was drawn from; None if none was drawn
    stream: dict[str, Any] | None = None  # a stream's own state, if it has one
    known: Known | None = None  # the scores by which it draws; None if none were known
    exempt: Tensor = NO_INDICES  # examples that need no scoring at its end
    # How far workers let its order be drawn: candidate batches, and the CRC-32 of their indices.
    reach: tuple[int, int] = 0, 0

    @property
    def waiting(self) -> int:
        """How many examples wait, in any buffer."""
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
    """Set a loader's or sampler's generators to states that they had."""
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
