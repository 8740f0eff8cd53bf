"""Which rows of the batch that was handed out last a loss belongs to."""

import weakref
from collections.abc import Collection
from itertools import accumulate
from operator import mul
from typing import Any, NoReturn

from torch import Tensor, strided

from selective_backprop._batches.structure import list_leaves, rows_of, share_memory
from selective_backprop._core.errors import LossError
from selective_backprop._sampling.draws import Selection

BY_HAND = (
    "pass with_selection=True to the loader, train on (selection.weights * losses).mean(), and "
    "call loader.record(selection, losses)"
)


class HandedBatch:
    """A batch that was handed out. It keeps no tensor of the batch alive."""

    def __init__(self, batch: Any, selection: Selection, *, even: bool) -> None:
        self.selection, self.even = selection, even  # whether all rows weigh 1
        self.size = selection.weights.shape[0]
        self.used = False  # whether the loss of some of its rows was computed
        self.done = 0  # rows that had a loss, if it comes in parts of targets that are no views
        # What is recorded once all rows had a loss, since only then it is known whose it is.
        self.parts: list[tuple[Selection, Tensor, tuple[Any, Any]]] = []
        self._refs = [weakref.ref(tensor) for tensor in _tensors_in(batch)]
        pair = isinstance(batch, (tuple, list)) and len(batch) > 1 and isinstance(batch[0], Tensor)
        self._inputs = int(pair)  # how many of these tensors are no targets
        self._seen: Any = None  # what is known of the targets that all rows had a loss with

    def tensors(self, first: int = 0) -> list[Tensor]:
        """Return its tensors that still exist, from the `first` on."""
        return [tensor for ref in self._refs[first:] if (tensor := ref()) is not None]

    def place(
        self, count: int, targets: Any, more: Any, before: Collection["HandedBatch"]
    ) -> tuple[slice, int, bool]:
        """Return the rows that `count` losses belong to; refuse losses that may be of others.

        Targets that are a view of the batch's own say which rows they are; so do further arguments
        of the loss, `more`. Other targets are those of the next rows, in order; after the last row,
        the first comes again. `before` are the batches handed out earlier in this epoch.

        Also return the number of losses for each row, which is above 1 for flattened positions, and
        whether all rows had a loss before, with other targets.
        """
        if isinstance(targets, Tensor) and targets.ndim:  # nearly always the batch's own
            for ref in self._refs:
                if ref() is targets:
                    return self._take(slice(0, targets.shape[0]), count, targets.data_ptr())
        given, wholes = _tensors_in(targets), self.tensors()
        for part in (*given, *(_tensors_in(more) if any(more) else ())):
            for whole in wholes:
                if (rows := rows_of(part, whole)) is not None:
                    return self._take(rows, count, part.data_ptr())
        self._refuse_strangers(given, count, before)
        rows = slice(self.done, min(self.done + count, self.size))
        place = self._take(rows, count, [(each.dtype, each.shape[1:]) for each in given])
        self.done = rows.stop % self.size
        return place

    def refuse_partial(self) -> NoReturn:
        raise LossError(
            f"only {self.done} of the {self.size} rows of the last batch had a loss. If your "
            "loop leaves out rows or parts, pass views of the batch's own targets, such as "
            f"targets[:4]. Otherwise {BY_HAND}"
        )

    def _take(self, rows: slice, count: int, seen: Any) -> tuple[slice, int, bool]:
        size, known = rows.stop - rows.start, {1}
        positions = count // size if size else 1
        if positions != 1:
            known.update(n for whole in self.tensors() for n in accumulate(whole.shape[1:], mul))
        if count != size * positions or positions not in known:
            raise LossError(
                f"the loss returned {count} numbers for {size} rows of the batch of {self.size} "
                "rows that the loader handed out last. If these are tokens or pixels of each row, "
                "keep the axis of rows: loss_fn(logits.transpose(1, 2), labels) for logits "
                f"[row, position, class]. Otherwise {BY_HAND}"
            )
        self.used, mixed = True, False
        if size == self.size:
            mixed, self._seen = self._seen not in (None, seen), seen
        return rows, positions, mixed

    def _refuse_strangers(
        self, given: list[Tensor], count: int, before: Collection["HandedBatch"]
    ) -> None:
        """Refuse targets that may be of other rows or of other data than this batch's."""
        own, targets = self.tensors(), self.tensors(self._inputs)
        named = ", ".join(f"{str(p.dtype).removeprefix('torch.')} {tuple(p.shape)}" for p in given)
        if (
            _share(given, own)
            or any(_share(given, each.tensors()) for each in before)
            or any(_alike(part, each, count) for part in given for each in targets)
        ):
            raise LossError(
                f"the targets, {named}, may be of other rows, of an earlier batch or of other "
                "data: they are neither the batch's own nor consecutive rows of these. Pass the "
                "batch's own targets, and evaluate with gradients off (torch.no_grad()) or in eval "
                f"mode. If your loop fetches batches ahead, {BY_HAND}"
            )
        if any(not each.used and _lives_beside(each, own) for each in before):
            raise LossError(
                f"the targets, {named}, may be of an earlier batch, which had no loss and is still "
                "in memory. Delete it (del) if you left it out. If your loop fetches batches "
                f"ahead, {BY_HAND}"
            )


def _tensors_in(batch: Any) -> list[Tensor]:
    """Return the tensors of a batch whose rows can be viewed."""
    return [
        leaf
        for leaf in list_leaves(batch)
        if isinstance(leaf, Tensor) and leaf.layout is strided and not leaf.is_nested
    ]


def _share(parts: list[Tensor], wholes: list[Tensor]) -> bool:
    return any(share_memory(part, whole) for part in parts for whole in wholes)


def _lives_beside(batch: HandedBatch, others: list[Tensor]) -> bool:
    """Return whether a batch is in memory, apart from tensors that other batches hold too."""
    return any(all(each is not other for other in others) for each in batch.tensors())


def _alike(part: Tensor, own: Tensor, count: int) -> bool:
    """Return whether targets that are no view may be other rows of `own`, or some flattened."""
    size, positions = len(own) if own.ndim else 0, own[:1].numel() if own.ndim else 0
    if part.ndim == 1 and count <= size and positions > 1:  # such as labels[:2, 1:].flatten()
        return any(each > 1 and count % each == 0 for each in (positions, positions - 1))
    same = part.dtype == own.dtype and part.device == own.device
    return same and (part.shape[1:] == own.shape[1:] or count != size)
