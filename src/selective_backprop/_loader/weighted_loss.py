"""The user's loss with weighting and recording added, for a loop that gets no selections.

A loss belongs to the batch that was handed out last, row by row, in order.
"""

import inspect
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Any, NoReturn

import torch
from torch import Tensor, nn, strided

from selective_backprop._batches.losses import (
    ExampleLosses,
    LossFunction,
    UnreducedLoss,
    average_examples,
    check_losses,
    is_plainly_torchs,
)
from selective_backprop._batches.structure import list_leaves, rows_of, share_memory
from selective_backprop._core.errors import LossError, warn
from selective_backprop._core.isolation import unwrapped
from selective_backprop._pipeline.gate_feed import AHEAD
from selective_backprop._sampling.draws import Selection
from selective_backprop.strategies._auto.entropies import ExcessLosses

WIDE = (torch.float32, torch.float64)  # a product with float32 weights of 1 changes neither
TAKE = """

    loss_fn = loader.loss_fn  # before the loop over this loader
    loss = loss_fn(model(inputs), targets)  # in the loop

"""
BY_HAND = (
    "pass with_selection=True to the loader, train on (selection.weights * losses).mean(), and "
    "call loader.record(selection, losses)"
)
UNCOMPILED: list[Callable[..., Any]] = []  # the call of a `WeighingLoss`, once there was one


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
        return [tensor for ref in self._refs[first:] if (tensor := ref()) is not None]

    def place(
        self, count: int, targets: Any, more: Any, before: Collection["HandedBatch"]
    ) -> tuple[slice, int, bool]:
        """Return the rows that `count` losses belong to; refuse losses that may be of others.

        Views of the batch's own targets say which rows they are; so do further arguments, `more`.
        Other targets are those of the next rows, in order and all around. Also return the number of
        losses per row (of flattened positions), and whether all rows had a loss of other targets.
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
                f"the loss returned {count} numbers for {size} rows of the last batch of "
                f"{self.size} rows. If these are tokens or pixels, keep the axis of rows: loss_fn("
                "logits.transpose(1, 2), labels) for logits [row, position, class]. Otherwise "
                f"{BY_HAND}"
            )
        self.used, mixed = True, False
        if size == self.size:
            mixed, self._seen = self._seen not in (None, seen), seen
        return rows, positions, mixed

    def _refuse_strangers(
        self, given: list[Tensor], count: int, before: Collection["HandedBatch"]
    ) -> None:
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
                "batch's own targets (change labels in the data set or the collate function, not "
                "in the loop), and evaluate with gradients off (torch.no_grad()) or in eval "
                f"mode. If your loop fetches batches ahead, {BY_HAND}"
            )
        held = {*map(id, own)}  # a batch may share tensors with earlier ones
        if any(not each.used and {*map(id, each.tensors())} - held for each in before):
            raise LossError(
                f"the targets, {named}, may be of an earlier batch, which had no loss and is still "
                "in memory. Delete it (del) if you left it out. If your loop fetches batches "
                f"ahead, {BY_HAND}"
            )


def _tensors_in(batch: Any) -> list[Tensor]:
    tensors = (leaf for leaf in list_leaves(batch) if isinstance(leaf, Tensor))
    return [each for each in tensors if each.layout is strided and not each.is_nested]


def _share(parts: list[Tensor], wholes: list[Tensor]) -> bool:
    return any(share_memory(part, whole) for part in parts for whole in wholes)


def _alike(part: Tensor, own: Tensor, count: int) -> bool:
    """Return whether targets that are no view may be other rows of `own`, or some flattened."""
    size, positions = len(own) if own.ndim else 0, own[:1].numel() if own.ndim else 0
    if part.ndim == 1 and count <= size and positions > 1:  # such as labels[:2, 1:].flatten()
        return any(each > 1 and count % each == 0 for each in (positions, positions - 1))
    same = part.dtype == own.dtype and part.device == own.device
    return same and (part.shape[1:] == own.shape[1:] or count != size)


class WeighingLoss:
    """A loss that weights and records the rows of the batch that a loader handed out last.

    If gradients are off, if `model` is in eval mode, or with `record=None`, this is the plain loss.
    With `weighs=False` it returns the plain loss, and records if it can. With `confidence` it
    records the excess over the lowest possible loss. With `ahead`, batches wait for `open_next`.
    """

    def __init__(
        self,
        loss_fn: LossFunction,
        record: Callable[[Selection, Tensor, tuple[Any, Any]], None] | None,
        model: nn.Module | None = None,
        *,
        weighs: bool = True,
        confidence: bool = False,
    ) -> None:
        self.given, self.ahead = loss_fn, False
        self.used = False  # whether a batch of this epoch was weighted or recorded
        self._ever_used = False  # whether one of an earlier epoch was
        self.waiting: deque[HandedBatch] = deque()
        self._open: HandedBatch | None = None
        self._before: deque[HandedBatch] = deque(maxlen=AHEAD)  # of this epoch
        self._count = 0  # batches that were opened since the last epoch with a loss
        average = ExcessLosses() if confidence else average_examples
        self._losses = ExampleLosses(loss_fn, average=average)
        self._record, self._weighs = record, weighs
        self._model = None if model is None else unwrapped(model)
        self._known = is_plainly_torchs(loss_fn)  # so its reduction is as expected
        self._compared = self._warned = False  # whether its reduction was found to be as expected

    @staticmethod
    def unwrapped(loss_fn: Any) -> Any:
        return loss_fn.given if isinstance(loss_fn, WeighingLoss) else loss_fn

    def hand_out(self, batch: Any, selection: Selection, *, even: bool = False) -> None:
        if self._record is not None:
            self.waiting.append(HandedBatch(batch, selection, even=even))
            if not self.ahead:
                self.open_next()

    def open_next(self) -> None:
        """Let the losses from now on belong to the oldest batch that waits."""
        if self.waiting:
            opened, before, self._open = self.waiting.popleft(), self._open, None
            if before is not None:
                if before.done:
                    before.refuse_partial()
                self._before.append(before)
            self._open, self._count = opened, self._count + 1

    def begin(self) -> None:
        """Begin an epoch; refuse it if the last one recorded nothing, but an earlier one did."""
        self.close()
        self._ever_used |= self.used
        count, self.used = 0 if self.used else self._count, False
        refuses = self._ever_used and count > AHEAD
        self._count = 0 if refuses else count  # once, so that a notebook may go on
        if refuses:
            raise LossError(
                f"the last {count} batches recorded no loss, so selection would go by older ones: "
                "loader.loss_fn was not called with gradients on and the model in train mode. Call "
                "model.train() before each epoch, and evaluate on a loader of its own"
            )

    def close(self) -> None:
        closed, self._open = self._open, None
        self._before.clear()
        if closed is not None and closed.done:
            closed.refuse_partial()

    def refuse_if_unused(self) -> None:
        if self._count > AHEAD and not (self.used or self._ever_used):
            raise LossError(
                f"{self._count} batches were taken, but loader.loss_fn was never called with "
                f"gradients on and the model in train mode. Write{TAKE}If the model computes its "
                f"loss itself (outputs.loss), pass outputs.logits instead. Or {BY_HAND}"
            )

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self._record is None or not torch.is_grad_enabled():
            return self.given(*given, **named)
        # Its state changes at each step, for which torch would compile it anew. The import is slow.
        if not UNCOMPILED:
            UNCOMPILED.append(torch.compiler.disable(WeighingLoss._call))
        return UNCOMPILED[0](self, given, named)

    def _call(self, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        args, more = given, named
        if len(given) < 2:
            forward = getattr(self.given, "forward", self.given)
            names = list(inspect.signature(forward).parameters)[len(given) : 2]
            args = *given, *(named[name] for name in names if name in named)
            more = {name: value for name, value in named.items() if name not in names}
        if (self._model is not None and not self._model.training) or len(args) < 2:
            return self.given(*given, **named)  # which says what is missing
        self.used = True
        if self._weighs:
            return self._weigh(*args, **more)
        with torch.no_grad(), suppress(LossError):
            self._weigh(*args, **more)
        return self.given(*given, **named)

    def _weigh(self, outputs: Any, targets: Any, *more: Any, **named: Any) -> Any:
        losses, batch = self._losses, self._open
        if batch is None:
            raise LossError(
                "the loader has returned no batch since loader.loss_fn was first read. To train, "
                f"write{TAKE}To evaluate, "
                "turn gradients off (torch.no_grad()), or call model.eval()"
            )
        if named and not isinstance(self.given, nn.Module):  # they may be options, such as weight=
            losses, named = ExampleLosses(partial(self.given, **named), average=losses.average), {}
        loss = losses.unreduced
        compares = not self._compared and (not self._known or more or named)
        compares = compares and loss.reduction not in (None, "none")
        # Computed first, so that both computations draw the same random numbers.
        given = loss.probe(outputs, targets, *more, **named) if compares else None
        found = loss.of_positions(outputs, targets, *more, **named)
        plain = found.detach() if isinstance(found, Tensor) and found.ndim else found
        if plain is found:
            check_losses(found, batch.size)  # which refuses it
        count = plain.shape[0]
        rows, positions, mixed = batch.place(count, targets, (more, named), tuple(self._before))
        if mixed and not self._warned:
            self._warned = True
            warn(
                "loader.loss_fn was called twice for one batch, with different targets; the last "
                "losses are recorded. Call it for the part of your loss that shows how hard an "
                "example is, and your own losses for the other parts"
            )
        if compares:
            self._compared = True
            _refuse_other_reduction(loss, plain, given, (outputs, targets, *more), named)
        (indices, weights), size = batch.selection, rows.stop - rows.start
        if size < batch.size:
            indices, weights = None if indices is None else indices[rows], weights[rows]
        seen = plain, outputs, targets
        if positions > 1:
            seen = tuple(_unflatten(each, size, positions) for each in seen)
        each = check_losses(losses.average(loss, *seen), size)
        batch.parts.append((Selection(indices, weights), each, (seen[1], seen[2])))
        while batch.parts and not batch.done:
            assert self._record is not None
            self._record(*batch.parts.pop(0))
        if batch.even and found.dtype in WIDE:
            return loss.reduce(found, targets)
        weights = weights.repeat_interleave(positions) if positions > 1 else weights
        return loss.reduce(found * weights.reshape(-1, *(1 for _ in found.shape[1:])), targets)


def _refuse_other_reduction(
    loss: UnreducedLoss, losses: Tensor, given: Any, args: Sequence[Any], named: Mapping[str, Any]
) -> None:
    ours, size = (loss.reduce(each, args[1]) for each in (losses, losses.abs()))
    if not isinstance(given, Tensor) or given.shape != ours.shape:
        return
    rounding = max(1e-3, 4 * torch.finfo(losses.dtype).eps) * size
    # If it is NaN, nothing is known. One that draws numbers of its own is never twice the same.
    if (given - ours).abs() > rounding and loss.probe(*args, **named) == given:
        raise LossError(
            f"your loss is {float(given):.4g}, but the {loss.reduction} of what it returns with "
            f'reduction="none" is {float(ours):.4g}. loader.loss_fn weights and reduces the '
            "latter, so both must be equal. If your loss ignores a class index, give it a "
            f"parameter ignore_index=. Otherwise {BY_HAND}"
        )


def _unflatten(tensor: Any, rows: int, positions: int) -> Any:
    """Return `[row * position, ...]` as `[row, ..., position]`, and all else unchanged."""
    if not isinstance(tensor, Tensor) or tensor.ndim < 1 or len(tensor) != rows * positions:
        return tensor
    return tensor.reshape(rows, positions, *tensor.shape[1:]).movedim(1, -1)
