"""Losses that replace the cross-entropy, if labels may be wrong or classes are rare.

Each takes logits `[row, class]`, classes, and the fraction of the run that is done.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from selective_backprop_lab.shapes import Float

Losses = Float[Tensor, " row"]
Loss = Callable[[Tensor, Tensor, float], Losses]


def generalised(logits: Tensor, targets: Tensor, progress: float, *, q: float) -> Losses:
    """Return `(1 - p ** q) / q` for each label's probability p; q near 0 is the cross-entropy.

    Source:
        Zhang and Sabuncu 2018, Generalized Cross Entropy Loss for Training Deep Neural Networks
        with Noisy Labels, arXiv:1805.07836.
    """
    entropies = functional.cross_entropy(logits, targets, reduction="none")
    return -torch.expm1(-q * entropies) / q


def focal(logits: Tensor, targets: Tensor, progress: float, *, gamma: float = 2.0) -> Losses:
    """Return each row's cross-entropy times `(1 - p) ** gamma`, for its label's probability p.

    Source:
        Lin et al. 2017, Focal Loss for Dense Object Detection, arXiv:1708.02002.
    """
    entropies = functional.cross_entropy(logits, targets, reduction="none")
    return entropies * (-torch.expm1(-entropies)).pow(gamma)


def trimmed(
    logits: Tensor,
    targets: Tensor,
    progress: float,
    *,
    share: float,
    rises: tuple[float, float] = (0.25, 0.4),
) -> Losses:
    """Return each row's cross-entropy, but 0 for the share of the batch with the highest values.

    The share rises from 0 to `share` between two moments of a run, because a net learns right
    labels before it memorises wrong ones. The other rows' losses are scaled up to make up for it.
    """
    losses = functional.cross_entropy(logits, targets, reduction="none")
    first, whole = rises
    risen = min(1.0, max(0.0, (progress - first) / (whole - first)))
    count = round(share * risen * len(losses))
    kept = torch.ones_like(losses)
    kept[losses.detach().topk(count).indices] = 0.0
    return losses * kept * (len(losses) / (len(losses) - count))
