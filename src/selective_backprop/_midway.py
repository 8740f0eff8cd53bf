"""What the rest of an epoch needs to know of its beginning, besides where the loader stands."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from selective_backprop._memory import Known
from selective_backprop._outlook import Start, holding
from selective_backprop._streams import Streams


@dataclass(frozen=True)
class Midway:
    """How an epoch began that is to go on.

    Attributes:
        start: where it started from; of rows that waited then, only their number is known.
        counted: what was counted until then, by the names of `Stats`.
        streams: what its order was drawn from; None where nothing of it was drawn.
        stream: where a stream stands that can tell; None for what has indices.
        known: the scores that it draws by; None where none were known.
        settled: examples that need no scoring at its end.
    """

    start: Start
    counted: dict[str, Any]
    streams: Streams | None
    stream: dict[str, Any] | None
    known: Known | None
    settled: Tensor

    def pack(self) -> dict[str, Any]:
        """Return it in plain containers."""
        early, late = ((state.candidates, state.rows) for state in self.start[2:4])
        return {
            "start": (*self.start[:2], early, late, *self.start[4:]),
            "counted": dict(self.counted),
            "streams": None if self.streams is None else self.streams.pack(),
            "stream": self.stream,
            "known": None if self.known is None else self.known.clone(),
            "settled": self.settled.clone(),
        }

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> "Midway":
        """Return what `pack()` was called on."""
        epoch, interludes, early, late, unscored, held = packed["start"]
        streams, known = packed["streams"], packed["known"]
        start = Start(epoch, interludes, holding(*early), holding(*late), unscored, held)
        return cls(
            start,
            packed["counted"],
            None if streams is None else Streams.unpack(streams),
            packed["stream"],
            None if known is None else known.cpu(),
            packed["settled"].cpu(),
        )
