"""The user's loss with weighting and recording added, for a loop that gets no selections.

The loss recognises the latest batches by their targets.
"""

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from selective_backprop._batches.losses import (
    ExampleLosses,
    LossFunction,
    UnreducedLoss,
    check_losses,
    is_plainly_torchs,
)
from selective_backprop._batches.structure import list_leaves, rows_of
from selective_backprop._core.errors import LossError
from selective_backprop._core.late_checks import LateChecks
from selective_backprop._core.uncompiled import uncompiled
from selective_backprop._pipeline.gate_feed import AHEAD
from selective_backprop._sampling.draws import Selection

MOST_HELD = 2**22  # bytes; targets that are cast are nearly always smaller, and inputs larger
WIDE = (torch.float32, torch.float64)  # a product with float32 weights of 1 changes neither


class WeighingLoss:
    """A loss that weights and records the rows of the batches that a loader hands out.

    `HandedBatches` recognises a batch by its targets. If gradients are off, or with `record=None`,
    this is the plain loss. With `weighs=False` it returns the plain loss, but records losses of
    batches that it recognises. With `confidence` it records by how much losses exceed the lowest
    possible loss.
    """

    def __init__(
        self,
        loss_fn: LossFunction,
        record: Callable[[Selection, Tensor, tuple[Any, Any]], None] | None,
        *,
        weighs: bool = True,
        confidence: bool = False,
    ) -> None:
        self.given = loss_fn
        self.handed = HandedBatches(casts=weighs)
        self.used = False  # whether a batch was weighted or recorded
        self._losses = ExampleLosses(loss_fn, excess=confidence)
        self._record = record
        self._weighs = weighs
        self._compared = is_plainly_torchs(loss_fn)  # whether its reduction is as expected

    @staticmethod
    def unwrapped(loss_fn: LossFunction) -> LossFunction:
        """Return the user's own loss, also if it is not wrapped."""
        return loss_fn.given if isinstance(loss_fn, WeighingLoss) else loss_fn

    def hand_out(self, batch: Any, selection: Selection, *, even: bool = False) -> None:
        """Note a batch that will be trained on; `even` if all of its rows weigh 1."""
        if self._record is not None:
            self.handed.add(batch, selection, even=even)

    def refuse_if_unused(self) -> None:
        """Refuse a loop that has taken too many batches without calling this loss."""
        if self.handed.count > AHEAD and not self.used:
            raise LossError(
                f"{self.handed.count} batches were taken, but loader.loss_fn was never called, so "
                "losses were neither weighted nor recorded. If the model computes its loss itself "
                "(outputs.loss), use loss_fn(logits, targets) with loss_fn = loader.loss_fn "
                "instead. Or pass with_selection=True, train on "
                "(selection.weights * losses).mean(), and call loader.record(selection, losses)"
            )

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Return the loss of a batch or of some of its rows, reduced as the user's loss is."""
        if self._record is None or not torch.is_grad_enabled():
            return self.given(outputs, targets)
        return self._weigh(outputs, targets)

    @uncompiled  # its state changes at each step, for which torch would compile it anew
    def _weigh(self, outputs: Any, targets: Any) -> Any:
        assert self._record is not None
        self.used = True
        known = self.handed.find(targets)
        if not self._weighs:
            if known is not None:
                with torch.no_grad(), suppress(LossError):
                    losses = self._losses.of_examples(outputs, targets)
                    self._record(known.selection, losses, (outputs, targets))
            return self.given(outputs, targets)
        if known is None:
            raise LossError(self.handed.explain(targets))
        weights = known.selection.weights
        unreduced = self._losses.unreduced
        compares = not self._compared and unreduced.reduction not in (None, "none")
        # Computed first, so that both computations draw the same random numbers.
        given = unreduced.probe(outputs, targets) if compares else None
        found = unreduced.of_positions(outputs, targets)
        plain = found.detach() if isinstance(found, Tensor) else found
        losses = self._losses.average(unreduced, plain, outputs, targets)
        checked = check_losses(losses, len(weights))
        if compares:
            self._compared = True
            self._compare(unreduced, plain, given, (outputs, targets))
        self._record(known.selection, checked, (outputs, targets))
        if not known.even or found.dtype not in WIDE:
            found = found * weights.reshape(-1, *(1 for _ in found.shape[1:]))
        return unreduced.reduce(found, targets)

    def _compare(self, unreduced: UnreducedLoss, losses: Tensor, given: Any, batch: Any) -> None:
        """Refuse a loss that does not reduce as `reduce` does. The CPU waits for the GPU."""
        ours, size = (unreduced.reduce(each, batch[1]) for each in (losses, losses.abs()))
        if not isinstance(given, Tensor) or given.shape != ours.shape:
            return
        rounding = max(1e-3, 4 * torch.finfo(losses.dtype).eps) * size
        # If the loss is NaN, nothing is known. One that draws numbers of its own is never twice
        # the same.
        if (given - ours).abs() > rounding and unreduced.probe(*batch) == given:
            raise LossError(
                f"your loss is {float(given):.4g}, but the {unreduced.reduction} of what it "
                f'returns with reduction="none" is {float(ours):.4g}. loader.loss_fn weights and '
                "reduces the latter, so both must be equal. If your loss ignores a class index, "
                "give it a parameter ignore_index=. Otherwise pass with_selection=True to the "
                "loader, multiply your losses by selection.weights, reduce them in your loop, and "
                "call loader.record(selection, losses)"
            )


@dataclass(eq=False)
class HandedBatch:
    """A batch that was handed out."""

    refs: list[weakref.ref[Tensor]]
    selection: Selection
    even: bool  # whether all rows weigh 1
    held: list[Tensor]  # tensors kept alive until its loss is computed
    trained: bool = False  # whether its loss was computed

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that still exist."""
        return [tensor for ref in self.refs if (tensor := ref()) is not None]


BatchRows: TypeAlias = tuple[HandedBatch, slice | None]  # None for all of its rows


class KnownRows(NamedTuple):
    """The rows whose loss is computed."""

    selection: Selection
    even: bool  # whether all rows of the batch weigh 1


class HandedBatches:
    """Recognise the last batches by their tensors, by views of their rows, and by casts.

    A cast has memory of its own, so it is recognised by its values. On a GPU, values are compared
    without waiting for it, so an error may concern a batch a few batches back.

    Args:
        casts: whether to recognise casts of targets, too.
    """

    def __init__(self, *, casts: bool) -> None:
        self._casts = casts
        self._batches: deque[HandedBatch] = deque(maxlen=AHEAD)
        self._late = LateChecks()
        self.count = 0  # batches that were handed out

    def add(self, batch: Any, selection: Selection, *, even: bool) -> None:
        """Note a batch that will be trained on; `even` if all of its rows weigh 1."""
        self.count += 1
        tensors = _tensors_in(batch)
        # A loop that fetches ahead may keep only the cast, which is compared with the original. So
        # the original is held, but not large tensors, which would fill memory and are rarely cast.
        held = [each for each in tensors if each.nbytes <= MOST_HELD] if self._casts else []
        refs = [weakref.ref(tensor) for tensor in tensors]
        self._batches.appendleft(HandedBatch(refs, selection, even, held))

    def find(self, targets: Any) -> KnownRows | None:
        """Return the rows that targets belong to; None if they belong to no batch.

        Raises:
            LossError: if earlier targets on a GPU were taken for a cast and turn out to be none.
        """
        batches = tuple(self._batches)  # a copy: a thread that reads ahead may append to them
        found = _find_view(batches, targets)
        if found is None and self._casts:
            found = self._find_cast(batches, targets)
        if found is None:
            return None
        batch, rows = found
        batch.trained = True
        batch.held = []
        (indices, weights), even = batch.selection, batch.even
        if rows is None:
            return KnownRows(batch.selection, even)
        return KnownRows(Selection(None if indices is None else indices[rows], weights[rows]), even)

    def explain(self, targets: Any) -> str:
        """Return the likeliest reason why targets belong to no batch, and what to do."""
        return _explain(targets, self._batches[0] if self._batches else None)

    def selection_of(self, batch: Any) -> Selection | None:
        """Return the selection of a batch that was handed out lately, or None."""
        tensors = _tensors_in(batch)
        for handed in tuple(self._batches):
            if tensors and handed.refs[0]() is tensors[0]:
                return handed.selection
        return None

    def wait(self) -> None:
        """Wait for comparisons that still run on the GPU; raise if one failed."""
        self._late.wait()

    def _find_cast(self, batches: tuple[HandedBatch, ...], targets: Any) -> BatchRows | None:
        if not isinstance(targets, Tensor) or not targets.ndim:
            return None
        # Batches are trained on in order, so the oldest that was not trained on comes first.
        waiting = [batch for batch in reversed(batches) if not batch.trained]
        for batch in (*waiting, *batches[:1]):
            casts = [whole for whole in batch.tensors if _may_be_cast(targets, whole)]
            if not casts:
                continue
            same = torch.stack([_are_equal(targets, whole) for whole in casts]).any()
            if same.is_cuda:
                why = _explain(targets, batch)
                self._late.add(same, lambda why=why: LossError(why))
            if same.is_cuda or bool(same):
                return batch, None
        return None


def _find_view(batches: tuple[HandedBatch, ...], targets: Any) -> BatchRows | None:
    """Return the batch that targets are a tensor or a view of, and which of its rows."""
    rows = isinstance(targets, Tensor) and targets.ndim
    if rows and batches and any(ref() is targets for ref in batches[0].refs):  # nearly always
        return batches[0], None
    wanted = _tensors_in(targets)
    for batch in batches:
        for whole in batch.tensors:
            for tensor in wanted:
                rows = rows_of(tensor, whole)
                if rows is not None:
                    return batch, rows
    return None


def _tensors_in(batch: Any) -> list[Tensor]:
    """Return the tensors of a batch whose rows can be viewed."""
    return [
        leaf
        for leaf in list_leaves(batch)
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided and not leaf.is_nested
    ]


def _may_be_cast(targets: Tensor, whole: Tensor) -> bool:
    """Return whether targets can be a cast of a tensor of another type, squeezed or not."""
    alike = targets.device == whole.device and targets.dtype != whole.dtype
    return alike and _squeezed(targets) == _squeezed(whole)


def _are_equal(targets: Tensor, whole: Tensor) -> Tensor:
    cast = whole.detach().to(targets.dtype).reshape(targets.shape)
    same = cast == targets.detach()
    if whole.is_floating_point() and targets.is_floating_point():
        same |= cast.isnan() & targets.isnan()  # such as unknown targets, which a loss masks
    return same.all()


def _squeezed(tensor: Tensor) -> list[int]:
    """Return a tensor's shape without axes of length 1, except for the rows."""
    return [*tensor.shape[:1], *(size for size in tensor.shape[1:] if size != 1)]


def _explain(targets: Any, batch: HandedBatch | None) -> str:
    """Return why targets belong to no batch, and what to do; `batch` is the newest, if any."""
    if batch is None:
        return "no batch was yielded since loader.loss_fn was taken. Take it before the loop"
    name = _name(targets) if isinstance(targets, Tensor) else f"a {type(targets).__name__}"
    return (
        f"the targets, {name}, are not rows of a recent batch. The last batch held "
        f"{', '.join(map(_name, batch.tensors)) or 'no tensor'}. Pass the batch's own targets, or "
        "consecutive rows of them: copies, mixed or one-hot targets, and targets on another device "
        "are not recognised. Make such targets in the data set or its collate function, evaluate "
        f"with gradients off (torch.no_grad()), and fetch at most {AHEAD} batches ahead. Or pass "
        "with_selection=True, train on (selection.weights * losses).mean(), and call "
        "loader.record(selection, losses)"
    )


def _name(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
