"""Evaluate a model on a set of examples."""

import math
from typing import Any

import scipy  # it imports its parts when they are used
import torch
from torch import Tensor, nn

from selective_backprop_lab.shapes import Float32

_ENOUGH = 10  # test examples of a class, for an average precision


@torch.no_grad()
def evaluate(
    model: nn.Module,
    loader: Any,
    device: torch.device,
    shift: Float32[Tensor, " class"] | None = None,
) -> dict[str, Any]:
    """Evaluate a model, and its logits with a `shift`; the result has names of `Point`'s fields."""
    model.eval()
    loss = torch.zeros(2, dtype=torch.float64, device=device)
    labels, misses, margins, chances = (list[Tensor]() for _ in range(4))
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        outputs: Tensor = model(inputs)
        loss[0] += nn.functional.cross_entropy(outputs, targets, reduction="sum")
        if shift is not None:
            loss[1] += nn.functional.cross_entropy(outputs + shift, targets, reduction="sum")
        labels.append(targets.flatten())
        misses.append((outputs.argmax(1) != targets).flatten())
        margins.append(outputs[:, -1] - outputs[:, 0])
        classes, is_text = outputs.shape[1], targets.ndim > 1
        if not is_text:
            chances.append(outputs.softmax(1))
    label, missed = torch.cat(labels), torch.cat(misses)
    counts, wrong = (each.bincount(minlength=classes) for each in (label, label[missed]))
    return {
        "test_error": 100.0 * int(missed.sum()) / len(label),
        "test_loss": float(loss[0]) / len(label),  # for text, over all tokens
        "class_errors": None if is_text else tuple((100.0 * wrong.double() / counts).tolist()),
        "ranking": None if is_text or classes != 2 else area_under_curve(torch.cat(margins), label),
        "rare_precision": None if is_text else _rare_precision(torch.cat(chances), label),
        "corrected_loss": None if shift is None else float(loss[1]) / len(label),
    }


def _rare_precision(chances: Tensor, labels: Tensor) -> float | None:
    counts = labels.bincount(minlength=chances.shape[1])
    rarest = int(counts.masked_fill(counts < _ENOUGH, len(labels) + 1).argmin())
    if counts[rarest] < _ENOUGH or not bool(chances[:, rarest].isfinite().all()):
        return None
    from sklearn.metrics import average_precision_score  # slow

    right = (labels == rarest).cpu().numpy()
    return float(average_precision_score(right, chances[:, rarest].double().cpu().numpy()))


def area_under_curve(scores: Tensor, labels: Tensor) -> float:
    """Return how often class 1 has a higher score than class 0, ties as a half; NaN without one."""
    ranks = scipy.stats.rankdata(scores.double().cpu())  # from 1; equal scores share their mean
    chosen = labels.cpu().numpy() == 1
    positive = int(chosen.sum())
    pairs = positive * (len(ranks) - positive)
    above = float(ranks[chosen].sum()) - positive * (positive + 1) / 2
    return above / pairs if pairs else math.nan
