"""The numbers that training computes with."""

from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn


class Precision(StrEnum):
    """The numbers that training computes with; `BF16` is autocast to bfloat16."""

    FP32 = "fp32"
    BF16 = "bf16"

    @property
    def dtype(self) -> torch.dtype | None:
        """What autocast computes in; None without it."""
        return torch.bfloat16 if self is Precision.BF16 else None

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """Return what a forward pass runs under."""
        return torch.autocast(device.type, dtype=self.dtype) if self.dtype else nullcontext()

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return a model that computes in this precision wherever it is called."""
        return model if self is Precision.FP32 else _Autocast(model, self)


class _Autocast(nn.Module):
    """A model under autocast, in training, scoring and evaluation alike; its logits are float32."""

    def __init__(self, inner: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.inner = inner
        self._precision = precision

    def forward(self, images: Float[Tensor, "candidate ..."]) -> Float32[Tensor, "candidate logit"]:
        with self._precision.autocast(images.device):
            return self.inner(images).float()
