"""What resuming in mid-epoch needs besides the consumer's position: how the epoch began."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.saved_state import FLOATS, Saved
from selective_backprop._core.stats import STATS_RANGES, Stats
from selective_backprop._pipeline.cursor import EpochStart
from selective_backprop._pipeline.score_memory import Known, ScoreMemory


class SamplerRngState:
    """The states of torch's global random stream and a sampler's generators at one moment.

    Args:
        stream: state of the global stream.
        own: states of the sampler's generators.
    """

    def __init__(self, stream: Tensor, own: tuple[Tensor, ...]) -> None:
        self.stream = stream
        self.own = own

    @classmethod
    def of(cls, sampler: Any) -> "SamplerRngState":
        """Return their states now."""
        own = tuple(generator.get_state() for generator in generators_of(sampler))
        return cls(torch.get_rng_state(), own)

    @contextmanager
    def again(self, sampler: Any) -> Generator[None]:
        """Let the sampler draw from these states in the body; its generators are not put back.

        The sampler must have as many generators as when the states were taken.
        """
        for generator, state in zip(generators_of(sampler), self.own, strict=True):
            generator.set_state(state)
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.stream)
            yield

    def pack(self) -> dict[str, Any]:
        """Return the states in plain containers."""
        return {"stream": self.stream, "own": list(self.own)}

    @classmethod
    def unpack(cls, saved: Saved, sampler: Any) -> "SamplerRngState":
        """Return what `pack()` was called on.

        Raises:
            ConfigurationError: if it is damaged, or the sampler has another number of generators.
        """
        stream, own = saved.fields("stream", "own")
        generators, states = generators_of(sampler), own.items()
        if len(generators) != len(states):
            raise ConfigurationError(
                f"the state is of a loader whose sampler draws from {len(states)} generators of "
                f"its own, this one's has {len(generators)}. Build the loader as it was."
            )
        return cls(
            stream.random_state(),
            tuple(
                state.random_state(generator.device)
                for generator, state in zip(generators, states, strict=True)
            ),
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


@dataclass(frozen=True)
class MidEpochState:
    """How an epoch that is to be continued began.

    Attributes:
        start: what it started with.
        counted: the counts when it began, by the names of `Stats`.
        streams: the random state its order was drawn from; None if nothing was drawn.
        stream: the state of a stream that has one; None for a loader with indices.
        known: the scores by which it draws; None if none were known.
        settled: examples that need no scoring at its end.
    """

    start: EpochStart
    counted: dict[str, Any]
    streams: SamplerRngState | None
    stream: dict[str, Any] | None
    known: Known | None
    settled: Tensor

    def state_dict(self) -> dict[str, Any]:
        """Return it in plain containers."""
        buffers = map(tuple, self.start[2:4])
        return {
            "start": (*self.start[:2], *buffers, *self.start[4:]),
            "counted": dict(self.counted),
            "streams": None if self.streams is None else self.streams.pack(),
            "stream": self.stream,
            "known": None if self.known is None else self.known.clone(),
            "settled": self.settled.clone(),
        }

    @classmethod
    def read(
        cls, saved: Saved, tally: Stats, drawn: int, sampler: Any, memory: ScoreMemory | None
    ) -> "MidEpochState":
        """Return the one whose `state_dict()` was saved.

        Args:
            saved: what it returned.
            tally: the counts when it was saved.
            drawn: batches of the epoch that had been drawn by then.
            sampler: draws the order of the examples; None for a stream.
            memory: remembers examples; None if nothing is remembered.

        Raises:
            ConfigurationError: if it is damaged, or of another sampler.
        """
        start, counted, streams, stream, known, settled = saved.fields(
            "start", "counted", "streams", "stream", "known", "settled"
        )
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
            streams.maybe(lambda each: SamplerRngState.unpack(each, sampler)),
            stream.value,
            known.maybe(read_known) if memory is None or scores else read_known(known),
            settled.tensor(torch.int64, shape=(None,), least=0, most=examples - 1).cpu(),
        )
