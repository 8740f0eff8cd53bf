"""What the rest of an epoch needs to know of its beginning, besides where the loader stands."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from selective_backprop._core.saved_state import FLOATS, LAST_EPOCH, Saved
from selective_backprop._core.stats import STATS_RANGES, Stats
from selective_backprop._pipeline.epoch_length import EpochStart, holding
from selective_backprop._pipeline.index_sampler import unpack_count
from selective_backprop._pipeline.sampler_rng import SamplerRngState
from selective_backprop._pipeline.score_memory import Known, ScoreMemory


@dataclass(frozen=True)
class MidEpochState:
    """How an epoch began that is to go on.

    Attributes:
        start: where it started from; of rows that waited then, only their number is known.
        counted: what was counted until then, by the names of `Stats`.
        streams: what its order was drawn from; None where nothing of it was drawn.
        stream: where a stream stands that can tell; None for what has indices.
        known: the scores that it draws by; None where none were known.
        settled: examples that need no scoring at its end.
    """

    start: EpochStart
    counted: dict[str, Any]
    streams: SamplerRngState | None
    stream: dict[str, Any] | None
    known: Known | None
    settled: Tensor

    def pack(self) -> dict[str, Any]:
        """Return it in plain containers."""
        index_buffer, row_buffer = ((state.candidates, state.rows) for state in self.start[2:4])
        return {
            "start": (*self.start[:2], index_buffer, row_buffer, *self.start[4:]),
            "counted": dict(self.counted),
            "streams": None if self.streams is None else self.streams.pack(),
            "stream": self.stream,
            "known": None if self.known is None else self.known.clone(),
            "settled": self.settled.clone(),
        }

    @classmethod
    def unpack(
        cls, saved: Saved, tally: Stats, drawn: int, sampler: Any, memory: ScoreMemory | None
    ) -> "MidEpochState":
        """Return what `pack()` was called on.

        Args:
            saved: what it returned.
            tally: what was counted when it was called.
            drawn: batches of the epoch that had been drawn by then.
            sampler: draws the order of the examples; None for a stream.
            memory: remembers examples; None where nothing does.

        Raises:
            ConfigurationError: if it is damaged, or of another sampler.
        """
        start, counted, streams, stream, known, settled = saved.fields(
            "start", "counted", "streams", "stream", "known", "settled"
        )
        epoch, cadence, index_buffer, row_buffer, unscored, held = start.items(6)
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
        waits = (
            holding(*(each.whole() for each in both.items(2)))
            for both in (index_buffer, row_buffer)
        )
        return cls(
            EpochStart(
                epoch.whole(0, LAST_EPOCH),
                unpack_count(cadence),
                *waits,
                unscored.whole(),
                held.whole(),
            ),
            asdict(before),
            streams.maybe(lambda each: SamplerRngState.unpack(each, sampler)),
            stream.value,
            known.maybe(read_known) if memory is None or scores else read_known(known),
            settled.tensor(torch.int64, shape=(None,), least=0, most=examples - 1).cpu(),
        )
