"""Where the consumer of the batches is, and what resuming there needs.

Saved states hold these tuples as `pack_batch` packs them.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._pipeline.rows import BufferState, Waits
from selective_backprop._pipeline.score_memory import Known

NO_INDICES = torch.empty(0, dtype=torch.int64)


class Cursor(NamedTuple):
    """How far the consumer has come, whatever workers have prefetched; travels with each batch."""

    epoch: int = -1  # -1 before the first
    candidates: int = 0  # examples of the epoch that have been drawn as candidates
    drawn: int = 0  # candidate batches of the epoch that have been drawn
    buffer: BufferState = BufferState()  # indices that wait, if selected before they are loaded
    unscored: Tensor = NO_INDICES  # indices that wait to be loaded and scored
    plain: bool = False  # whether the index buffer hands out rows that were not selected
    digest: int = 0  # CRC-32 of the indices that have been drawn in the epoch
    exempt: int = 0  # how many pieces of the epoch need no scoring at its end

    def opening(self, epoch: int) -> "Cursor":
        """Return the position where another epoch begins: what waits, and none of its counts."""
        return Cursor(epoch, buffer=self.buffer._replace(windows=0), unscored=self.unscored)


class EpochStart(NamedTuple):
    """What an epoch starts with, in numbers."""

    epoch: int
    index_buffer: Waits = Waits()  # drawn from before loading
    row_buffer: Waits = Waits()
    unscored: int = 0  # indices that wait to be loaded and scored
    held: int = 0  # rows of a batch kept from an epoch that another rank ended; it goes first

    @property
    def waiting(self) -> int:
        """How many examples wait, in any buffer."""
        return sum(self.index_buffer) + sum(self.row_buffer) + self.unscored + self.held


class SamplerRngState(NamedTuple):
    """The states of torch's global random stream and a sampler's generators at one moment."""

    stream: Tensor
    own: list[Tensor]

    @classmethod
    def of(cls, sampler: Any) -> "SamplerRngState":
        """Return their states now."""
        own = [generator.get_state() for generator in generators_of(sampler)]
        return cls(torch.get_rng_state(), own)

    @contextmanager
    def again(self, sampler: Any) -> Generator[None]:
        """Let the sampler draw from these states in the body; its generators are not put back."""
        for generator, state in zip(generators_of(sampler), self.own, strict=True):
            generator.set_state(state)
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.stream)
            yield

    def check(self, sampler: Any) -> None:
        """Refuse states of a sampler that draws from other generators than this one."""
        count = len(generators_of(sampler))
        if count != len(self.own):
            raise ConfigurationError(
                f"in the state the sampler draws from {len(self.own)} generators of its own, here "
                f"from {count}. Build the loader as it was."
            )


def generators_of(sampler: Any) -> list[torch.Generator]:
    """Return the generators that a sampler holds, or that the samplers inside it hold."""
    found: list[torch.Generator] = []
    while sampler is not None:
        held = vars(sampler).values() if hasattr(sampler, "__dict__") else ()
        for value in held:
            if isinstance(value, torch.Generator) and not any(value is each for each in found):
                found.append(value)
        sampler = getattr(sampler, "sampler", None)
    return found


class MidEpochState(NamedTuple):
    """How an epoch that is to be continued began."""

    start: EpochStart
    counted: dict[str, Any]  # the counts when it began, by the names of `Stats`
    streams: SamplerRngState | None  # its order was drawn from; None if nothing was drawn
    stream: dict[str, Any] | None  # the state of a stream that has one, as the stream gave it
    known: Known | None  # the scores by which it draws; None if none were known
    exempt: Tensor  # examples that need no scoring at its end
