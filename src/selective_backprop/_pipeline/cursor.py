"""The consumer's position in a loader's batches: one record that travels with each batch."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._core.saved_state import LAST_EPOCH, MOST, Saved
from selective_backprop._core.stats import Stats
from selective_backprop._pipeline.rows import BufferState
from selective_backprop._sampling.schedule import Phase


class Cursor(NamedTuple):
    """How far the consumer has come, whatever workers have prefetched beyond it.

    Attributes:
        epoch: the epoch's number; -1 before the first.
        candidates: examples of the epoch that have been drawn as candidates.
        drawn: candidate batches of the epoch that have been drawn.
        cadence: the count by which unselective batches are dealt out.
        buffer: the indices that wait, if examples are selected before they are loaded.
        unscored: indices that wait to be loaded and scored, as a tuple of pieces.
        phase: the phase of the rows that the index buffer is handing out.
        digest: CRC-32 of the indices that have been drawn in the epoch.
        settled: how many pieces of the epoch need no scoring at its end.
    """

    epoch: int = -1
    candidates: int = 0
    drawn: int = 0
    cadence: tuple[int, int] = (0, 0)
    buffer: BufferState = BufferState()
    unscored: tuple[Tensor, ...] = ()
    phase: Phase = Phase.PRESELECTED
    digest: int = 0
    settled: int = 0

    @property
    def gathered(self) -> int:
        """How many indices wait to be loaded and scored."""
        return sum(map(len, self.unscored))

    def state_dict(self) -> dict[str, Any]:
        """Return it in plain containers for any file format, without `settled`."""
        return {
            "candidates": self.candidates,
            "drawn": self.drawn,
            "cadence": self.cadence,
            "index_buffer": self.buffer.pack(),
            "unscored": torch.cat([torch.empty(0, dtype=torch.int64), *self.unscored]),
            "phase": self.phase.value,
            "digest": self.digest,
        }

    @classmethod
    def read(cls, saved: Saved, counted: Stats, examples: int | None) -> "Cursor":
        """Return the cursor whose `state_dict()` was saved; `settled` is 0.

        Args:
            saved: what it returned.
            counted: the counts by then.
            examples: size of the data set, which bounds indices; None if any index may occur.

        Raises:
            ConfigurationError: if it is damaged.
        """
        candidates, drawn, cadence, waits, unscored, phase, digest = saved.fields(
            *("candidates", "drawn", "cadence", "index_buffer", "unscored", "phase", "digest")
        )
        most = MOST if examples is None else examples - 1
        gathered = unscored.tensor(torch.int64, shape=(None,), least=0, most=most).cpu()
        return cls(
            counted.epoch,
            candidates.whole(0, counted.candidates),
            drawn.whole(),
            read_cadence(cadence),
            BufferState.unpack(waits, examples=examples, keys=True, device=torch.device("cpu")),
            (gathered,) if len(gathered) else (),
            phase.choice(Phase),
            digest.whole(0, 2**32 - 1),
        )


class Waits(NamedTuple):
    """How much waits in a buffer.

    Attributes:
        candidates: candidates that wait for a full window.
        rows: chosen rows that wait for a full training batch.
    """

    candidates: int = 0
    rows: int = 0

    @classmethod
    def of(cls, state: BufferState) -> "Waits":
        """Count what a buffer holds."""
        return cls(state.candidates, state.rows)


class EpochStart(NamedTuple):
    """What an epoch starts with, in numbers.

    Attributes:
        epoch: its number.
        cadence: the count by which unselective batches are dealt out.
        index_buffer: indices that wait, drawn before loading.
        row_buffer: loaded rows that wait.
        unscored: how many indices wait to be loaded and scored.
        held: rows of a full batch kept from an epoch that another rank ended; it goes first.
    """

    epoch: int
    cadence: tuple[int, int]
    index_buffer: Waits = Waits()
    row_buffer: Waits = Waits()
    unscored: int = 0
    held: int = 0

    @property
    def waiting(self) -> int:
        """How many examples wait, in any buffer."""
        return sum(self.index_buffer) + sum(self.row_buffer) + self.unscored + self.held

    @classmethod
    def read(cls, saved: Saved) -> "EpochStart":
        """Return what was saved as a tuple.

        Raises:
            ConfigurationError: if it is damaged.
        """
        epoch, cadence, *buffers, unscored, held = saved.items(6)
        index_buffer, row_buffer = (
            Waits(*(count.whole() for count in each.items(2))) for each in buffers
        )
        return cls(
            epoch.whole(0, LAST_EPOCH),
            read_cadence(cadence),
            index_buffer,
            row_buffer,
            unscored.whole(),
            held.whole(),
        )


def read_cadence(saved: Saved) -> tuple[int, int]:
    """Return the count by which unselective batches are dealt out.

    Raises:
        ConfigurationError: if it is damaged.
    """
    seen, passed = saved.items(2)
    return seen.whole(), passed.whole(0, seen.whole())
