"""The user's loss with weighting and recording added, for a loop without selections."""

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches.losses import (
    ExampleLosses,
    LossFunction,
    average_examples,
    check_losses,
    excess_losses,
)
from selective_backprop._batches.structure import list_leaves, rows_of
from selective_backprop._core.errors import LossError
from selective_backprop._pipeline.gate_feed import AHEAD
from selective_backprop._sampling.draws import Selection


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
        self._loss_fn = loss_fn
        self._losses = ExampleLosses(loss_fn)
        self._record = record
        self._weighs = weighs
        self._confidence = confidence
        self._handed: deque[tuple[list[weakref.ref[Tensor]], Selection]] = deque(maxlen=AHEAD)

    def hand_out(self, batch: Any, selection: Selection) -> None:
        """Note a batch that will be trained on."""
        if self._record is not None:
            refs = [weakref.ref(tensor) for tensor in _tensors_in(batch)]
            self._handed.appendleft((refs, selection))

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Return the loss of a batch or part of one that was handed out, reduced as the user's."""
        if self._record is None or not torch.is_grad_enabled():
            return self._loss_fn(outputs, targets)
        part = self._find(targets)
        if not self._weighs:
            if part is not None:
                with torch.no_grad(), suppress(LossError):
                    losses = self._losses.of_examples(outputs, targets)
                    self._record(part, losses, (outputs, targets))
            return self._loss_fn(outputs, targets)
        if part is None:
            raise LossError(
                "the targets belong to no batch that this loader handed out lately: they were made "
                "anew from it, as one-hot targets are, come from elsewhere, or were handed out "
                f"before loader.loss_fn was taken, or more than {AHEAD} batches ago: take it "
                f"before the loop, and fetch at most {AHEAD} batches ahead. Evaluate with "
                "gradients off (torch.no_grad()), or with the loss itself. For targets made anew, "
                "pass with_selection=True, train on (selection.weights * losses).mean(), and call "
                "loader.record(selection, losses)."
            )
        weights = part.weights
        found = self._losses.of_positions(outputs, targets)
        averaged = average_examples(found, targets, self._losses.ignored)
        losses = check_losses(averaged, len(weights))
        noted = losses
        if self._confidence:
            excess = excess_losses(self._loss_fn, found.detach(), outputs, targets)
            noted = average_examples(excess, targets, self._losses.ignored)
        self._record(part, noted, (outputs, targets))
        match self._losses.reduction:
            case "mean":
                return self._losses.mean(losses * weights, targets)
            case "sum" | "batchmean" as reduction:
                sums = (found.flatten(1).sum(1) if found.ndim > 1 else found) * weights
                return sums.sum() if reduction == "sum" else sums.mean()
            case None | "none":
                return losses * weights
            case other:
                raise LossError(
                    f"the loss has reduction={other!r}, and what that does with weights is not "
                    'known; write "mean", "sum", "batchmean" or "none"'
                )

    def selection_of(self, batch: Any) -> Selection | None:
        """Return the selection of a batch that was handed out lately, or None."""
        tensors = _tensors_in(batch)
        for refs, selection in tuple(self._handed):
            if tensors and refs[0]() is tensors[0]:
                return selection
        return None

    def _find(self, targets: Any) -> Selection | None:
        wanted = _tensors_in(targets)
        # a copy: a thread that reads ahead may append to it
        for refs, (indices, weights) in tuple(self._handed):
            for whole in [ref() for ref in refs]:
                for tensor in wanted:
                    rows = None if whole is None else rows_of(tensor, whole)
                    if rows is not None:
                        return Selection(None if indices is None else indices[rows], weights[rows])
        return None


def _tensors_in(batch: Any) -> list[Tensor]:
    return [
        leaf
        for leaf in list_leaves(batch)
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided and not leaf.is_nested
    ]
