"""What a rank notes about examples until the ranks put their notes together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from selective_backprop._ledger import Column, Ledger
from selective_backprop._ranks import Group, Ranks
from selective_backprop._saved import LAST_EPOCH, Saved
from selective_backprop._types import RowIndices

MOST_GATHERED = 2**30  # bytes of a ledger that each rank may hold the whole of
FEW = 2048  # examples counted at once, which keeps a count that stops at 30,000 to two bytes


class Notes:
    """Scores in the order in which they came, 16 bytes each."""

    def __init__(self) -> None:
        self._rows: list[Int64[Tensor, "row 2"]] = []

    def __len__(self) -> int:
        return sum(map(len, self._rows))

    def file(self, indices: RowIndices, scores: Tensor, epoch: int) -> None:
        """Note a score of each of some examples; as `Column.file`."""
        bits = scores.detach().to(torch.float32).contiguous().view(torch.int32)
        halves = torch.stack([bits, torch.full_like(bits, epoch)], dim=1)
        indices = indices.to(bits.device, non_blocking=True)
        self._rows.append(torch.stack([indices, halves.view(torch.int64).flatten()], dim=1))

    @property
    def rows(self) -> Int64[Tensor, "row 2"]:
        """All of it: an index, and the bits of a score with its epoch."""
        return torch.cat(self._rows) if self._rows else torch.empty((0, 2), dtype=torch.int64)

    @rows.setter
    def rows(self, rows: Int64[Tensor, "row 2"]) -> None:
        self._rows = [rows] if len(rows) else []


class Journal:
    """Takes notes as a ledger does, and holds an epoch's of them until they are merged.

    Args:
        examples: examples in the data set.

    Attributes:
        scored: scores taken by selection passes.
        recorded: losses that the user recorded from training.
    """

    def __init__(self, examples: int) -> None:
        self._examples = examples
        self.scored = Notes()
        self.recorded = Notes()
        self._counted: list[RowIndices] = []

    def count(self, indices: RowIndices) -> None:
        """Note that examples go into a training batch, once for each time they are named."""
        self._counted.append(indices)

    @property
    def counted(self) -> RowIndices:
        """The examples that went into training batches."""
        return torch.cat(self._counted) if self._counted else torch.empty(0, dtype=torch.int64)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many scores, recorded losses and counts there are."""
        return len(self.scored), len(self.recorded), sum(map(len, self._counted))

    def clear(self) -> None:
        """Forget everything."""
        self.scored, self.recorded, self._counted = Notes(), Notes(), []

    def state_dict(self) -> dict[str, Any]:
        """Return what was noted and not yet merged."""
        return {
            "scored": self.scored.rows.clone(),
            "recorded": self.recorded.rows.clone(),
            "counted": self.counted.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`.

        Raises:
            ConfigurationError: if the state is of another data set's size, or damaged; the notes
                are then as they were.
        """
        scored, recorded, counted = Saved(state).fields("scored", "recorded", "counted")
        notes = self._read(scored), self._read(recorded)
        last = self._examples - 1
        indices = counted.tensor(torch.int64, shape=(None,), least=0, most=last)
        self.scored.rows, self.recorded.rows = notes
        self._counted = [indices] if len(indices) else []

    def _read(self, notes: Saved) -> Int64[Tensor, "row 2"]:
        rows = notes.tensor(torch.int64, shape=(None, 2))
        indices, halves = rows[:, 0], rows[:, 1:].contiguous().view(torch.int32)
        last = self._examples - 1
        Saved(indices, notes.path).tensor(torch.int64, shape=(None,), least=0, most=last)
        Saved(halves[:, 1], notes.path).tensor(torch.int32, shape=(None,), least=0, most=LAST_EPOCH)
        return rows


@dataclass(frozen=True)
class Shard:
    """Which examples a rank's ledger is about: every `size`-th, from `rank` on.

    Attributes:
        rank: the first of them.
        size: into how many parts the ledger is cut; 1 where each rank holds the whole.
    """

    rank: int = 0
    size: int = 1

    def examples(self, total: int) -> int:
        """Return how many of `total` examples belong to it."""
        return len(range(self.rank, total, self.size))


def find_shard(examples: int, depth: int, ranks: Ranks) -> Shard:
    """Return the part of a ledger that a rank holds: all of it, up to a gibibyte.

    Args:
        examples: examples in the data set.
        depth: how many scores of each are remembered.
        ranks: who trains together.
    """
    most = examples * (2 * 6 * depth + 2)  # both columns and the counts
    return Shard(ranks.rank, ranks.size) if most > MOST_GATHERED else Shard()


def merge(
    journal: Journal,
    ledger: Ledger,
    shard: Shard,
    group: Group,
    sizes: Sequence[tuple[int, int, int]],
) -> None:
    """File what all ranks have noted, in the same order on each; nothing is left in the journal.

    Args:
        journal: this rank's.
        ledger: of the shard's examples.
        shard: which examples those are.
        group: the ranks.
        sizes: each rank's `Journal.sizes`.

    Raises:
        LoaderError: if a rank does not answer.
    """
    scored, recorded, counted = zip(*sizes, strict=True)
    for column, notes, counts in (
        (ledger.scored, journal.scored, scored),
        (ledger.recorded, journal.recorded, recorded),
    ):
        for _, _, rows in group.gather_rows(notes.rows, counts):
            own = rows[rows[:, 0] % shard.size == shard.rank]
            _file(column, own[:, 0] // shard.size, own[:, 1:].contiguous().view(torch.int32))
    for _, _, indices in group.gather_rows(journal.counted, counted):
        for part in indices[indices % shard.size == shard.rank].split(FEW):
            ledger.count(part // shard.size)
    journal.clear()


def _file(column: Column, indices: RowIndices, noted: Tensor) -> None:
    scores, epochs = noted[:, 0].contiguous().view(torch.float32), noted[:, 1]
    if not len(indices):  # another rank's examples; something was filed all the same
        column.file(indices, scores, 0)
    for epoch in epochs.unique().tolist():
        places = (epochs == epoch).nonzero().flatten()
        for once in in_turn(indices[places], column.depth):
            column.file(indices[places[once]], scores[places[once]], epoch)


def in_turn(indices: RowIndices, most: int) -> Iterator[RowIndices]:
    """Yield the last `most` places of each example, so that none comes twice at once.

    Args:
        indices: examples, some of them perhaps several times.
        most: of how many places of an example anybody wants to know.
    """
    if not len(indices):
        return
    ordered, order = indices.sort(stable=True)
    last = torch.searchsorted(ordered, ordered, right=True) - 1
    later = torch.empty_like(order)
    later[order] = last - torch.arange(len(order), device=order.device)
    for number in reversed(range(min(most, int(later.max()) + 1))):
        yield (later == number).nonzero().flatten()
