"""Evaluate a model on a set of examples."""

import math
from typing import Any

import scipy  # it imports its parts when they are used
import torch
from torch import Tensor, nn


@torch.no_grad()
def evaluate(model: nn.Module, loader: Any, device: torch.device) -> dict[str, Any]:
    """Evaluate a model on a loader's examples; the result has the names of `Point`'s fields."""
    model.eval()
    loss = torch.zeros((), dtype=torch.float64, device=device)
    labels, misses, margins = list[Tensor](), list[Tensor](), list[Tensor]()
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        outputs: Tensor = model(inputs)
        loss += nn.functional.cross_entropy(outputs, targets, reduction="sum")
        labels.append(targets.flatten())
        misses.append((outputs.argmax(1) != targets).flatten())
        margins.append(outputs[:, -1] - outputs[:, 0])
        classes, is_text = outputs.shape[1], targets.ndim > 1
    label, missed = torch.cat(labels), torch.cat(misses)
    counts, wrong = (each.bincount(minlength=classes) for each in (label, label[missed]))
    return {
        "test_error": 100.0 * int(missed.sum()) / len(label),
        "test_loss": float(loss) / len(label),  # for text, over all tokens
        "class_errors": None if is_text else tuple((100.0 * wrong.double() / counts).tolist()),
        "ranking": None if is_text or classes != 2 else area_under_curve(torch.cat(margins), label),
    }


def area_under_curve(scores: Tensor, labels: Tensor) -> float:
    """Return how often class 1 has a higher score than class 0, ties as a half; NaN without one."""
    ranks = scipy.stats.rankdata(scores.double().cpu())  # from 1; equal scores share their mean
    chosen = labels.cpu().numpy() == 1
    positive = int(chosen.sum())
    pairs = positive * (len(ranks) - positive)
    above = float(ranks[chosen].sum()) - positive * (positive + 1) / 2
    return above / pairs if pairs else math.nan
