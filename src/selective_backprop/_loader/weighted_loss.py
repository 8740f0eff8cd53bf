"""The user's loss with weighting and recording added, for a loop without selections."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches.losses import (
    ExampleLosses,
    LossFunction,
    check_losses,
)
from selective_backprop._core.errors import LossError
from selective_backprop._loader.handed_batches import HandedBatches
from selective_backprop._pipeline.gate_feed import AHEAD
from selective_backprop._sampling.draws import Selection

WIDE = (torch.float32, torch.float64)  # which a product with float32 weights of 1 leaves as it is


class WeighingLoss:
    """A loss that weights and records the rows of the batches that a loader hands out.

    A batch is recognised by its targets, as `HandedBatches` says. With gradients off nothing is
    trained on, and this is the plain loss. With `record=None` it always is. With `weighs=False` it
    is the plain loss too, but what can be recorded is. With `confidence`, losses are recorded as
    what they exceed the lowest possible loss by.
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
        self.handed = HandedBatches()
        self.used = False  # whether a batch was weighted or recorded
        self._losses = ExampleLosses(loss_fn, excess=confidence)
        self._record = record
        self._weighs = weighs

    def hand_out(self, batch: Any, selection: Selection, *, even: bool = False) -> None:
        """Note a batch that will be trained on, and whether all of its rows weigh 1."""
        if self._record is not None:
            self.handed.add(batch, selection, even=even)

    def refuse_if_unused(self) -> None:
        """Refuse a loop that has fetched more batches than it may and called this for none."""
        if self.handed.count > AHEAD and not self.used:
            raise LossError(
                f"{self.handed.count} batches were handed out, and loader.loss_fn was called for "
                "none of them, so that losses are neither weighted nor recorded. If the model "
                "computes its loss itself, as with outputs.loss, compute it as loss_fn(logits, "
                "targets) with loss_fn = loader.loss_fn; or pass with_selection=True, train on "
                "(selection.weights * losses).mean(), and call loader.record(selection, losses)"
            )

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Return the loss of a batch or part of one that was handed out, reduced as the user's."""
        if self._record is None or not torch.is_grad_enabled():
            return self.given(outputs, targets)
        self.used = True
        known = self.handed.find(targets, casts=self._weighs)
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
        found = unreduced.of_positions(outputs, targets)
        plain = found.detach() if isinstance(found, Tensor) else found
        losses = self._losses.average(unreduced, plain, outputs, targets)
        self._record(known.selection, check_losses(losses, len(weights)), (outputs, targets))
        if not known.even or found.dtype not in WIDE:
            found = found * weights.reshape(-1, *(1 for _ in found.shape[1:]))
        return unreduced.reduce(found, targets)
