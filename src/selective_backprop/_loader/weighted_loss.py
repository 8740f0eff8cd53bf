"""The user's loss with weighting and recording added, for a loop without selections."""

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._batches.losses import (
    ExampleLosses,
    LossFunction,
    check_losses,
)
from selective_backprop._batches.structure import list_leaves, rows_of
from selective_backprop._core.errors import LossError
from selective_backprop._pipeline.gate_feed import AHEAD
from selective_backprop._sampling.draws import Selection

WIDE = (torch.float32, torch.float64)  # which a product with float32 weights of 1 leaves as it is


class Handed(NamedTuple):
    """A batch that was handed out."""

    tensors: list[weakref.ref[Tensor]]
    selection: Selection
    even: bool  # whether all rows weigh 1


class WeighingLoss:
    """A loss that weights and records the rows of the batches that a loader hands out.

    A batch is recognised by its targets: the same tensors or views of them, such as parts of the
    batch. With gradients off nothing is trained on, and this is the plain loss. With `record=None`
    it always is. With `weighs=False` it is the plain loss too, but what can be recorded is. With
    `confidence`, losses are recorded as what they exceed the lowest possible loss by.
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
        self._losses = ExampleLosses(loss_fn)
        self._record = record
        self._weighs = weighs
        self._confidence = confidence
        self._handed: deque[Handed] = deque(maxlen=AHEAD)
        self._count = 0  # batches that were handed out
        self.used = False  # whether a batch was weighted or recorded

    def hand_out(self, batch: Any, selection: Selection, *, even: bool = False) -> None:
        """Note a batch that will be trained on, and whether all of its rows weigh 1."""
        if self._record is not None:
            self._count += 1
            refs = [weakref.ref(tensor) for tensor in _tensors_in(batch)]
            self._handed.appendleft(Handed(refs, selection, even))

    def refuse_if_unused(self) -> None:
        """Refuse a loop that has fetched more batches than it may and called this for none."""
        if self._count > AHEAD and not self.used:
            raise LossError(
                f"{self._count} batches were handed out, and loader.loss_fn was called for none of "
                "them, so that their losses are neither weighted nor recorded. If the model "
                "computes its loss itself, as with outputs.loss, compute it as loss_fn(logits, "
                "targets) with loss_fn = loader.loss_fn; or pass with_selection=True, train on "
                "(selection.weights * losses).mean(), and call loader.record(selection, losses)"
            )

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Return the loss of a batch or part of one that was handed out, reduced as the user's."""
        if self._record is None or not torch.is_grad_enabled():
            return self.given(outputs, targets)
        self.used = True
        part, even = self._find(targets)
        if not self._weighs:
            if part is not None:
                with torch.no_grad(), suppress(LossError):
                    losses = self._losses.of_examples(outputs, targets)
                    self._record(part, losses, (outputs, targets))
            return self.given(outputs, targets)
        if part is None:
            raise LossError(
                "the targets belong to no batch that this loader handed out lately: they were made "
                "anew from it, as one-hot targets are, come from elsewhere, or were handed out "
                f"before loader.loss_fn was taken, or more than {AHEAD} batches ago: take it "
                f"before the loop, and fetch at most {AHEAD} batches ahead. Evaluate with "
                "gradients off (torch.no_grad()), or with the loss itself. For targets made anew, "
                "pass with_selection=True, train on (selection.weights * losses).mean(), and call "
                "loader.record(selection, losses). A loop that mixes rows (MixUp, CutMix) has no "
                "loss of single examples: take selective_backprop or random_backprop."
            )
        unreduced = self._losses.unreduced
        found = unreduced.of_positions(outputs, targets)
        losses = check_losses(unreduced.of_examples(found, targets), len(part.weights))
        noted = losses
        if self._confidence:
            plain = found.detach()
            excess = unreduced.excess(plain, outputs, targets)
            noted = losses if excess is plain else unreduced.of_examples(excess, targets)
        self._record(part, noted, (outputs, targets))
        if not even or found.dtype not in WIDE:
            found = found * part.weights.reshape(-1, *(1 for _ in found.shape[1:]))
        return unreduced.reduce(found, targets)

    def selection_of(self, batch: Any) -> Selection | None:
        """Return the selection of a batch that was handed out lately, or None."""
        tensors = _tensors_in(batch)
        for handed in tuple(self._handed):
            if tensors and handed.tensors[0]() is tensors[0]:
                return handed.selection
        return None

    def _find(self, targets: Any) -> tuple[Selection | None, bool]:
        """Return the selection of targets, None if there is none, and whether all rows weigh 1."""
        recent = tuple(self._handed)  # a copy: a thread that reads ahead may append to it
        if recent and isinstance(targets, Tensor) and targets.ndim:  # nearly always the newest
            newest = recent[0]
            if any(ref() is targets for ref in newest.tensors):
                return newest.selection, newest.even
        wanted = _tensors_in(targets)
        for refs, (indices, weights), even in recent:
            for whole in [ref() for ref in refs]:
                for tensor in wanted:
                    rows = None if whole is None else rows_of(tensor, whole)
                    if rows is not None:
                        part = None if indices is None else indices[rows]
                        return Selection(part, weights[rows]), even
        return None, False


def _tensors_in(batch: Any) -> list[Tensor]:
    return [
        leaf
        for leaf in list_leaves(batch)
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided and not leaf.is_nested
    ]
