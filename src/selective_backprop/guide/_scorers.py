"""The cheap scorers that are worth trying on a model and its batches."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches.structure import map_tensors
from selective_backprop.experimental import Int8, LowPrecision, LowResolution
from selective_backprop.scorers import AbstractScorer, Forward

LEAST_SIDE = 16  # pixels; halving a smaller image would leave too little of it


@dataclass(frozen=True)
class CheapScorer:
    """A scorer and the code that makes it.

    Attributes:
        scorer: without its own check, since the guide compares it with exact scores.
        code: as a user writes it, with the usual check.
        overlaps: whether it scores beside the training, so that only a loop shows what it gains.
    """

    scorer: AbstractScorer
    code: str
    overlaps: bool = False


def cheap_scorers(
    batch: Any, device: torch.device | None, autocast: torch.dtype | None
) -> dict[str, CheapScorer]:
    """Return scorers by name, the most promising first.

    Args:
        batch: a candidate batch.
        device: where candidates are scored.
        autocast: the type that training passes are computed in; None for full precision.
    """
    on_gpu = device is not None and device.type == "cuda"
    exact = exact_scorer(autocast)
    code = "sb.scorers.Forward()"
    if autocast is not None:
        code = f"sb.experimental.LowPrecision({code}, {autocast})"
    found = {
        "int8": CheapScorer(
            Int8(Forward(), check=None), "sb.experimental.Int8(sb.scorers.Forward())"
        )
    }
    if on_gpu and autocast is None:
        low = LowPrecision(Forward(), check=None)
        found["bf16"] = CheapScorer(low, "sb.experimental.LowPrecision(sb.scorers.Forward())")
    if _has_images(batch):
        low = LowResolution(exact, check=None)
        found["half-resolution"] = CheapScorer(low, f"sb.experimental.LowResolution({code})")
    return found


def exact_scorer(autocast: torch.dtype | None) -> AbstractScorer:
    """Return the scorer that computes losses as training does."""
    return Forward() if autocast is None else LowPrecision(Forward(), autocast, check=None)


def _has_images(batch: Any) -> bool:
    shapes: list[torch.Size] = []

    def note(tensor: Tensor) -> Tensor:
        shapes.append(tensor.shape)
        return tensor

    map_tensors(note, batch)
    return any(len(shape) == 4 and min(shape[2:]) >= LEAST_SIDE for shape in shapes)
