"""The options of a loader, as its stages keep them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from selective_backprop._batches.losses import LossFunction
from selective_backprop._batches.structure import Layout
from selective_backprop._core.stopwatch import Stopwatch
from selective_backprop._core.types import LossesOf, OutputsOf
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.rows import Leftovers


@dataclass(frozen=True)
class LoaderOptions:
    """The user's options for a loader, checked and in the package's own types.

    Attributes are the arguments of `SelectiveLoader`; `layout` holds `pad` and `whole`.
    """

    model: nn.Module | None
    loss_fn: LossFunction | None
    losses: LossesOf | None
    outputs: OutputsOf | None
    batch_size: int | None
    leftovers: Leftovers
    with_selection: bool
    layout: Layout
    device: torch.device | None
    seed: int
    nonfinite: NonFinite
    stopwatch: Stopwatch | None
    process_group: Any
    overlap: bool
