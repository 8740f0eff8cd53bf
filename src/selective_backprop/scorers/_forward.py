"""The selection pass of Selective-Backprop: one forward of the model itself, without gradients."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from selective_backprop._context import Context
from selective_backprop._errors import ConfigurationError
from selective_backprop._losses import check_losses
from selective_backprop._types import LossesOf, RowIndices, Scores
from selective_backprop.scorers._abstract import AbstractScorer, RunningScorer
from selective_backprop.scorers._untouched import (
    KeptBuffers,
    kept_modes,
    kept_random_streams,
    uncached_autocast,
)


@final
@dataclass(frozen=True)
class Forward(AbstractScorer):
    """Score each candidate by its loss, from a forward pass of the model as it is.

    The pass leaves no trace: each module's mode, the buffers, and the random streams of torch,
    NumPy and Python are afterwards what they were, and nothing is recorded for gradients. The
    model's forward hooks do run.

    Args:
        training: score in training mode (dropout on, batch statistics) instead of eval mode.
        autocast: a type such as `torch.bfloat16` to run the pass in, or None for the precision
            that is in force around the loop.
        inference_mode: use `torch.inference_mode` instead of `no_grad`; a little faster, but a
            model that caches tensors across calls would then fail to train.
    """

    training: bool = False
    autocast: torch.dtype | None = None
    inference_mode: bool = False

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer.

        Raises:
            ConfigurationError: if the training has no model or no losses.
        """
        if context.model is None or context.losses is None:
            raise ConfigurationError("Forward() scores with the model, and there is none")
        return _RunningForward(self, context.model, context.losses, context.device)


class _RunningForward(RunningScorer):
    def __init__(
        self, spec: Forward, model: nn.Module, losses: LossesOf, device: torch.device | None
    ) -> None:
        self._spec = spec
        # A forward through the wrapper would skip its next broadcast of buffers.
        self._model = model.module if isinstance(model, DistributedDataParallel) else model
        self._losses = losses
        self._device = device
        self._buffers = KeptBuffers(self._model)

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(kept_random_streams(self._device))
            stack.enter_context(kept_modes(self._model, self._spec.training))
            stack.enter_context(self._buffers.kept())
            if self._spec.inference_mode:
                stack.enter_context(torch.inference_mode())
            if self._spec.autocast is None:
                stack.enter_context(uncached_autocast(self._device))
            else:
                kind = "cpu" if self._device is None else self._device.type
                stack.enter_context(
                    torch.autocast(kind, dtype=self._spec.autocast, cache_enabled=False)
                )
            losses = self._losses(self._model, batch)
        return check_losses(losses, None if indices is None else indices.shape[0])

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
