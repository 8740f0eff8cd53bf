"""Scores and counts that each rank keeps until all ranks merge them into the ledger."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches.structure import move_tensor
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import Int64, RowIndices, RowMask
from selective_backprop._distributed.group import Group
from selective_backprop._memory.ledger import AwaitedLosses, Column, Ledger

KINDS = 4  # of updates
SCORED, RECORDED, CLASSIFIED, COUNTED = range(KINDS)


class PendingUpdates:
    """Keeps what the ledger is told since the ranks last merged, in the order of the calls.

    Each update of an example is a row of two int64 numbers: the index with the kind of the update,
    and a score's bits with the epoch.
    """

    def __init__(self, examples: int, depth: int = 1) -> None:
        self._awaited = AwaitedLosses(examples, depth)
        self._rows: list[Int64[Tensor, "row 2"]] = []

    def __len__(self) -> int:
        return sum(map(len, self._rows))

    def score(self, indices: RowIndices, scores: Tensor, epoch: int) -> None:
        self._note(SCORED, indices, scores, epoch)

    def record(self, indices: RowIndices, losses: Tensor, epoch: int) -> None:
        self._note(RECORDED, indices, losses, epoch, self._awaited.answer(indices))

    def classify(self, indices: RowIndices, classes: Tensor) -> None:
        self._note(CLASSIFIED, indices, classes, 0)

    def hand_out(self, indices: RowIndices) -> None:
        self._awaited.hand_out(indices)
        self._note(COUNTED, indices, torch.zeros_like(indices), 0)

    def _note(
        self, kind: int, indices: RowIndices, scores: Tensor, epoch: int, new: RowMask | None = None
    ) -> None:
        bits = scores.detach().to(torch.float32).contiguous().view(torch.int32)
        epochs = torch.full_like(bits, epoch)
        if new is not None:  # `~epoch` marks a score that replaces the example's previous one
            epochs = epochs.where(move_tensor(new, bits.device), ~epochs)
        keys = KINDS * move_tensor(indices, bits.device) + kind
        halves = torch.stack([bits, epochs], dim=1).view(torch.int64).flatten()
        self._rows.append(torch.stack([keys, halves], dim=1))

    @property
    def rows(self) -> Int64[Tensor, "row 2"]:
        device = self._rows[0].device if self._rows else None
        none = torch.empty((0, 2), dtype=torch.int64, device=device)
        return torch.cat([none, *(move_tensor(each, none.device) for each in self._rows)])

    def clear(self) -> None:
        self._rows = []

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "awaited": self._awaited.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved, awaited = Saved(state).fields("rows", "awaited")
        rows = saved.tensor(torch.int64, shape=(None, 2))
        self._awaited.load(awaited)
        self._rows = [rows]


def merge(pending: PendingUpdates, ledger: Ledger, group: Group, counts: Sequence[int]) -> None:
    """File the pending updates of all ranks, in the same order on each; `counts` are theirs."""
    for _, _, rows in group.gather_rows(pending.rows, counts):
        indices, kinds = rows[:, 0] // KINDS, rows[:, 0] % KINDS
        scores, epochs = rows[:, 1:].contiguous().view(torch.int32).unbind(1)
        for kind in kinds.unique().tolist():
            places = (kinds == kind).nonzero().flatten()
            if kind == COUNTED:
                ledger.count(indices[places])
            else:
                column = (ledger.scored, ledger.recorded, ledger.classes)[kind]
                _file(column, indices[places], scores[places].view(torch.float32), epochs[places])
    pending.clear()


def _file(column: Column, indices: RowIndices, scores: Tensor, epochs: Tensor) -> None:
    new = epochs >= 0
    epochs = epochs.where(new, ~epochs)
    # A column takes scores of one epoch at a time, with no example twice.
    for epoch in epochs.unique().tolist():
        places = (epochs == epoch).nonzero().flatten()
        for once in in_turn(indices[places]):
            now = places[once]
            column.file(indices[now], scores[now], epoch, new[now])


def in_turn(indices: RowIndices) -> Iterator[RowIndices]:
    """Yield all places in groups with no example twice, each example's places in order."""
    ordered, order = indices.sort(stable=True)
    earlier = torch.empty_like(order)
    first = torch.searchsorted(ordered, ordered)
    earlier[order] = torch.arange(len(order), device=order.device) - first
    for number in range(int(earlier.max()) + 1):
        yield (earlier == number).nonzero().flatten()
