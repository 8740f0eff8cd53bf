"""Scores and counts that each rank keeps until all ranks merge them into the ledger."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from selective_backprop._batches.structure import move_tensor
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import Int32, Int64, RowIndices, RowMask
from selective_backprop._distributed.group import Group, Ranks
from selective_backprop._memory.ledger import AwaitedLosses, Column, Ledger, example_bytes

MOST_GATHERED = 2**30  # bytes; each rank holds the whole of a ledger up to this size
COLUMNS = "scored", "recorded", "classes"
Sizes: TypeAlias = tuple[int, int, int, int]  # of pending updates: of each column, and the counts


class PendingScores:
    """Scores of 16 bytes each, in the order in which they were filed."""

    def __init__(self, rows: Int64[Tensor, "row 2"] | None = None) -> None:
        self._rows = [] if rows is None or not len(rows) else [rows]
        self._distinct = True

    def __len__(self) -> int:
        return len(self.rows)

    def file(
        self, indices: RowIndices, scores: Tensor, epoch: int, new: RowMask | None = None
    ) -> None:
        """Keep one score for each of some examples; same as `Column.file`."""
        bits = scores.detach().to(torch.float32).contiguous().view(torch.int32)
        epochs = torch.full_like(bits, epoch)
        if new is not None:  # `~epoch` marks a score that replaces the example's previous one
            epochs = epochs.where(move_tensor(new, bits.device), ~epochs)
            self._distinct = False
        # The score's bits and the epoch share an int64, so that a row is two numbers of one type.
        halves = torch.stack([bits, epochs], dim=1)
        indices = move_tensor(indices, bits.device)
        self._rows.append(torch.stack([indices, halves.view(torch.int64).flatten()], dim=1))

    @property
    def rows(self) -> Int64[Tensor, "row 2"]:
        """The scores that were not replaced. A row is an index, and a score's bits and epoch."""
        if len(self._rows) != 1 or not self._distinct:
            rows = torch.cat(self._rows or [torch.empty((0, 2), dtype=torch.int64)])
            self._rows = [rows if self._distinct else _without_replaced(rows)]
            self._distinct = True
        return self._rows[0]


def _halves(rows: Int64[Tensor, "row 2"]) -> Int32[Tensor, "row 2"]:
    """Return a view of each row's score, as bits, and of its `epoch` or `~epoch`."""
    return rows.view(torch.int32)[:, 2:]


def _without_replaced(rows: Int64[Tensor, "row 2"]) -> Int64[Tensor, "kept 2"]:
    """Return the rows that no later row replaces, marked as the first row that each replaces."""
    if not len(rows):
        return rows
    indices, order = rows[:, 0].sort(stable=True)
    epochs = _halves(rows)[order, 1]
    goes_on = torch.zeros_like(indices, dtype=torch.bool)
    goes_on[1:] = (indices[1:] == indices[:-1]) & (epochs[1:] < 0)
    first = (~goes_on).nonzero().flatten()
    last = torch.cat([first[1:], first.new_tensor([len(rows)])]) - 1
    # The first of several rows decides whether the last one replaces a score of the ledger.
    kept, replaces = order[last], epochs[first] < 0
    rows = rows.clone()
    own = _halves(rows)
    newest = own[kept, 1].where(own[kept, 1] >= 0, ~own[kept, 1])
    own[kept, 1] = newest.where(~replaces, ~newest)
    return rows[kept.sort().values]


class PendingUpdates:
    """Keeps an epoch's scores, losses and counts, until they are merged into the ledger."""

    def __init__(self, examples: int, depth: int = 1) -> None:
        self._awaited = AwaitedLosses(examples, depth)
        self.clear()

    def clear(self) -> None:
        """Forget everything, except which examples await a loss."""
        self.scored, self.recorded, self.classes = PendingScores(), PendingScores(), PendingScores()
        self._counted: list[RowIndices] = []

    def hand_out(self, indices: RowIndices) -> None:
        """Note that examples go into a training batch; same as `Ledger.hand_out`."""
        self._awaited.hand_out(indices)
        self._counted.append(indices)

    def record(self, indices: RowIndices, losses: Tensor, epoch: int) -> None:
        """Keep training losses; same as `Ledger.record`."""
        self.recorded.file(indices, losses, epoch, self._awaited.answer(indices))

    def classify(self, indices: RowIndices, classes: Tensor) -> None:
        """Keep the classes of some examples; same as `Ledger.classify`."""
        self.classes.file(indices, classes, 0)

    @property
    def counted(self) -> RowIndices:
        """The examples that went into training batches."""
        return torch.cat(self._counted) if self._counted else torch.empty(0, dtype=torch.int64)

    @property
    def sizes(self) -> Sizes:
        """How many scores, recorded losses, classes and counts there are."""
        counted = sum(map(len, self._counted))
        return len(self.scored), len(self.recorded), len(self.classes), counted

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is not merged yet."""
        rows = {name: getattr(self, name).rows.clone() for name in COLUMNS}
        return rows | {"awaited": self._awaited.state_dict(), "counted": self.counted.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`. A state that is refused changes nothing."""
        *columns, awaited, counted = Saved(state).fields(*COLUMNS, "awaited", "counted")
        loaded = [PendingScores(each.tensor(torch.int64, shape=(None, 2))) for each in columns]
        indices = counted.tensor(torch.int64, shape=(None,))
        self._awaited.load(awaited)
        self.scored, self.recorded, self.classes = loaded
        self._counted = [indices] if len(indices) else []


@dataclass(frozen=True)
class Shard:
    """The examples in a rank's ledger: every `size`-th, beginning with `rank`."""

    rank: int = 0
    size: int = 1

    def examples(self, total: int) -> int:
        """Return how many of `total` examples belong to the shard."""
        return len(range(self.rank, total, self.size))


def find_shard(examples: int, depth: int, ranks: Ranks, *, first: bool = False) -> Shard:
    """Return the part of the ledger that a rank holds: all of it, if it has at most 1 GiB."""
    most = examples * example_bytes(depth, columns=2, first=first)  # scored and recorded
    return Shard(ranks.rank, ranks.size) if most > MOST_GATHERED else Shard()


def merge(
    pending: PendingUpdates, ledger: Ledger, shard: Shard, group: Group, sizes: Sequence[Sizes]
) -> None:
    """File the pending updates of all ranks in the ledger, in the same order on each rank.

    The ledger holds only the shard's examples. `sizes` are each rank's `PendingUpdates.sizes`.
    """
    *filed, counted = zip(*sizes, strict=True)
    for name, counts in zip(COLUMNS, filed, strict=True):
        for _, _, rows in group.gather_rows(getattr(pending, name).rows, counts):
            own = rows[rows[:, 0] % shard.size == shard.rank]
            _file(getattr(ledger, name), own[:, 0] // shard.size, _halves(own.contiguous()))
    for _, _, indices in group.gather_rows(pending.counted, counted):
        ledger.count(indices[indices % shard.size == shard.rank] // shard.size)
    pending.clear()


def _file(column: Column, indices: RowIndices, noted: Tensor) -> None:
    scores, epochs = noted[:, 0].contiguous().view(torch.float32), noted[:, 1]
    new = epochs >= 0
    epochs = epochs.where(new, ~epochs)
    if not len(indices):  # all belong to other shards; the column must still count a change
        column.file(indices, scores, 0)
    # A column takes scores of one epoch at a time, with no example twice.
    for epoch in epochs.unique().tolist():
        places = (epochs == epoch).nonzero().flatten()
        for once in in_turn(indices[places], column.last_needed):
            now = places[once]
            column.file(indices[now], scores[now], epoch, new[now])


def in_turn(indices: RowIndices, most: int | None) -> Iterator[RowIndices]:
    """Yield the last `most` places of each example, or all, in groups with no example twice."""
    if not len(indices):
        return
    ordered, order = indices.sort(stable=True)
    last = torch.searchsorted(ordered, ordered, right=True) - 1
    later = torch.empty_like(order)
    later[order] = last - torch.arange(len(order), device=order.device)
    for number in reversed(range(int(later.max()) + 1)[:most]):
        yield (later == number).nonzero().flatten()
