"""Where the consumer of the batches is, and what resuming there needs."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.saved_state import FLOATS, LAST_EPOCH, MOST, Saved
from selective_backprop._core.stats import STATS_RANGES, Stats
from selective_backprop._pipeline.rows import BufferState, Waits
from selective_backprop._pipeline.score_memory import Known, ScoreMemory
from selective_backprop._sampling.schedule import Phase

NO_INDICES = torch.empty(0, dtype=torch.int64)


class Cursor(NamedTuple):
    """How far the consumer has come, whatever workers have prefetched; travels with each batch."""

    epoch: int = -1  # -1 before the first
    candidates: int = 0  # examples of the epoch that have been drawn as candidates
    drawn: int = 0  # candidate batches of the epoch that have been drawn
    buffer: BufferState = BufferState()  # indices that wait, if selected before they are loaded
    unscored: Tensor = NO_INDICES  # indices that wait to be loaded and scored
    phase: Phase = Phase.PRESELECTED  # of the rows that the index buffer is handing out
    digest: int = 0  # CRC-32 of the indices that have been drawn in the epoch
    settled: int = 0  # how many pieces of the epoch need no scoring at its end

    def opening(self, epoch: int) -> "Cursor":
        """Return the position where another epoch begins: what waits, and none of its counts."""
        buffer = self.buffer._replace(windows=0)
        return Cursor(epoch, buffer=buffer, unscored=self.unscored)

    def state_dict(self) -> dict[str, Any]:
        """Return it in plain containers for any file format, without `settled`."""
        return {
            "candidates": self.candidates,
            "drawn": self.drawn,
            "index_buffer": self.buffer.pack(),
            "unscored": self.unscored.clone(),
            "phase": self.phase.value,
            "digest": self.digest,
        }

    @classmethod
    def read(cls, saved: Saved, counted: Stats, examples: int | None) -> "Cursor":
        """Return the cursor whose `state_dict()` was saved with `counted`, if it is not damaged."""
        candidates, drawn, waits, unscored, phase, digest = saved.fields(
            *("candidates", "drawn", "index_buffer", "unscored", "phase", "digest")
        )
        most = MOST if examples is None else examples - 1
        return cls(
            counted.epoch,
            candidates.whole(0, counted.candidates),
            drawn.whole(),
            BufferState.unpack(waits, examples=examples, keys=True, device=torch.device("cpu")),
            unscored.tensor(torch.int64, shape=(None,), least=0, most=most).cpu(),
            phase.choice(Phase),
            digest.whole(0, 2**32 - 1),
        )


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

    def state_dict(self) -> dict[str, Any]:
        """Return it in plain containers."""
        buffers = {"index_buffer": self.index_buffer, "row_buffer": self.row_buffer}
        return self._asdict() | {name: waits._asdict() for name, waits in buffers.items()}

    @classmethod
    def read(cls, saved: Saved) -> "EpochStart":
        """Return what was saved, if it is not damaged."""
        epoch, index_buffer, row_buffer, unscored, held = saved.fields(*cls._fields)
        return cls(
            epoch.whole(0, LAST_EPOCH),
            *(
                Waits(*(count.whole() for count in each.fields(*Waits._fields)))
                for each in (index_buffer, row_buffer)
            ),
            unscored=unscored.whole(),
            held=held.whole(),
        )


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

    @classmethod
    def read(cls, saved: Saved, sampler: Any) -> "SamplerRngState":
        """Return the states that were saved, if they are of such a sampler and not damaged."""
        stream, own = saved.fields("stream", "own")
        generators, states = generators_of(sampler), own.items()
        if len(generators) != len(states):
            raise ConfigurationError(
                f"the state is of a loader whose sampler draws from {len(states)} generators of "
                f"its own, this one's has {len(generators)}. Build the loader as it was."
            )
        pairs = zip(generators, states, strict=True)
        return cls(stream.random_state(), [each.random_state(own.device) for own, each in pairs])


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
    stream: dict[str, Any] | None  # the state of a stream that has one
    known: Known | None  # the scores by which it draws; None if none were known
    settled: Tensor  # examples that need no scoring at its end

    def state_dict(self) -> dict[str, Any]:
        """Return it in plain containers."""
        return {
            "start": self.start.state_dict(),
            "counted": dict(self.counted),
            "streams": None if self.streams is None else self.streams._asdict(),
            "stream": self.stream,
            "known": None if self.known is None else self.known.clone(),
            "settled": self.settled.clone(),
        }

    @classmethod
    def read(
        cls, saved: Saved, tally: Stats, drawn: int, sampler: Any, memory: ScoreMemory | None
    ) -> "MidEpochState":
        """Return what was saved, with `tally`, after `drawn` batches, if it fits and is intact."""
        start, counted, streams, stream, known, settled = saved.fields(*cls._fields)
        before = counted.record(Stats, **STATS_RANGES)
        for name, least in vars(before).items():
            if name != "ties" and least > getattr(tally, name):
                raise counted.refuse(f"{name} up to {getattr(tally, name)}")
        if sampler is None:
            streams.nothing()
        else:
            stream.nothing()
            if streams.value is None and drawn:
                raise streams.refuse(f"where the order of {drawn} batches was drawn from")
        examples, scores = (0, False) if memory is None else (memory.examples, memory.needs.passes)

        def read_known(known: Saved) -> Known:
            return known.tensor(*FLOATS, shape=(examples,), nan=scores).cpu()

        if memory is None:
            known.nothing()
        return cls(
            EpochStart.read(start),
            asdict(before),
            streams.maybe(lambda each: SamplerRngState.read(each, sampler)),
            stream.value,
            known.maybe(read_known) if memory is None or scores else read_known(known),
            settled.tensor(torch.int64, shape=(None,), least=0, most=examples - 1).cpu(),
        )
