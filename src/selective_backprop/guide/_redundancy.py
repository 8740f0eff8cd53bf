"""How redundant examples are to a model: which have its loss, and which supply its gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches.losses import check_losses
from selective_backprop._core.isolation import eval_mode
from selective_backprop.guide._gradients import (
    Gradient,
    cosine,
    equal_signs,
    flat_gradient,
    supplied,
    trained,
)
from selective_backprop.guide._subject import Subject

STEPS = 20  # quantile steps from the lowest loss to the highest


@dataclass(frozen=True)
class Redundancy:
    """How much of what a model has to learn lies in few examples, after a short warm-up.

    Losses and gradients are those of the model in eval mode, as in the paper's figure 5. The
    selection is the examples with the highest losses. Compare its numbers with those of a random
    selection of the same size, whose expected share of loss and gradient is `rate`.

    Attributes:
        steps: training steps of the warm-up, on a copy.
        examples: how many examples were looked at.
        rate: the share of them that is selected.
        quantiles: of the losses, from the lowest to the highest in 20 steps.
        loss_share: the selection's share of the sum of losses.
        gradient_share: the selection's share of the gradient of all, along that gradient. It may
            be above 1 if the other examples' gradients point the other way.
        cosine: of the selection's gradient and that of all, in [-1, 1].
        random_cosine: the same for a random selection.
        equal_signs: share of the parameters in which the selection's gradient has the sign of
            that of all.
        random_equal_signs: the same for a random selection.
    """

    steps: int
    examples: int
    rate: float
    quantiles: tuple[float, ...]
    loss_share: float
    gradient_share: float
    cosine: float
    random_cosine: float
    equal_signs: float
    random_equal_signs: float

    def kept_by_confidence(self, floor: float) -> float:
        """Return the share that `Confident` would keep, from the quantiles.

        Args:
            floor: the lowest odds of being kept.
        """
        return _mean([max(floor, min(1.0, 2 - 2 * math.exp(-loss))) for loss in self.quantiles])

    def below_mean(self) -> float:
        """Return the share of the losses that lie below their mean, from the quantiles."""
        mean = _mean(self.quantiles)
        return _mean([float(loss < mean) for loss in self.quantiles])


def look(subject: Subject, batches: Sequence[Any], steps: int) -> Redundancy | None:
    """Look at the losses and gradients of some batches.

    Args:
        subject: a copy of a training that has been warmed up.
        batches: candidate batches, where the copy is.
        steps: training steps of the warm-up.

    Returns:
        What was found; None if the copy has diverged, so that no loss or not the whole gradient
        is finite.

    Raises:
        LossError: if there is not one loss for each example.
    """
    with eval_mode(subject.model):
        with torch.no_grad():
            parts = [check_losses(subject.example_losses(batch), None) for batch in batches]
        losses = torch.cat(parts).float()
        count = max(1, round(subject.rate * len(losses)))
        highest = torch.zeros_like(losses, dtype=torch.bool)
        # NaN counts as the lowest here: `topk` would take it for the highest.
        highest[losses.nan_to_num(nan=-math.inf).topk(count).indices] = True
        chance = torch.zeros_like(highest)
        chance[torch.randperm(len(losses))[:count].to(losses.device)] = True
        sizes = [len(part) for part in parts]
        top, random, whole = _gradients(subject, batches, highest.split(sizes), chance.split(sizes))
    finite = losses.clamp(min=0).nan_to_num(nan=0.0, posinf=0.0)
    known = losses[losses.isfinite()].cpu()
    found = {
        "loss_share": float(finite[highest].sum() / finite.sum().clamp(min=1e-30)),
        "gradient_share": float(supplied(top, whole)),
        "cosine": float(cosine(top, whole)),
        "random_cosine": float(cosine(random, whole)),
    }
    if not len(known) or not all(map(math.isfinite, found.values())):
        return None
    points = torch.linspace(0, 1, STEPS + 1)
    return Redundancy(
        steps=steps,
        examples=len(losses),
        rate=subject.rate,
        quantiles=tuple(known.quantile(points).tolist()),
        equal_signs=float(equal_signs(top, whole)),
        random_equal_signs=float(equal_signs(random, whole)),
        **found,
    )


def _gradients(
    subject: Subject, batches: Sequence[Any], *marked: Sequence[Tensor]
) -> tuple[Gradient, ...]:
    """Return the gradient of the sum of marked rows' losses, for each marking, and of all rows'."""
    parameters = trained(subject.model)
    sums: list[Gradient | None] = [None] * (len(marked) + 1)
    for number, batch in enumerate(batches):
        losses = subject.example_losses(batch)
        masks = [marks[number] for marks in marked]
        totals = [losses[mask].sum() for mask in masks] + [losses.sum()]
        for place, total in enumerate(totals):
            found = flat_gradient(total, parameters, again=place < len(totals) - 1)
            before = sums[place]
            sums[place] = found if before is None else before + found
    return tuple(each for each in sums if each is not None)


def _mean(values: Sequence[float]) -> float:
    """Return the mean of a curve given at equal distances, with its two ends at half weight."""
    if len(values) < 2:
        return values[0]
    return (sum(values) - (values[0] + values[-1]) / 2) / (len(values) - 1)
