"""Find out from the targets whether a batch holds mixtures of examples."""

from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches.structure import list_leaves
from selective_backprop._core.errors import warn

SLACK = 1e-2  # largest error of a sum of many probabilities in half precision


def warn_of_mixtures(batch: Any) -> None:
    """Warn if a batch that was loaded by index looks as if MixUp or CutMix made it.

    Only probabilities as targets show this. Pairs of class numbers with a share do not.
    """
    if any(_is_mixed(leaf) for leaf in list_leaves(batch) if isinstance(leaf, Tensor)):
        warn(
            "the targets look mixed from two examples each, as MixUp or CutMix in the collate "
            "function does. This strategy remembers examples by index, so it would file the loss "
            "of a mixture under one of the two. Mix the batches that the loader yields, and use a "
            "strategy that scores candidates, such as selective_backprop."
        )


def _is_mixed(targets: Tensor) -> bool:
    """Return whether targets are probabilities `[candidate, class]` that look mixed.

    There must be at least three classes. In each row at most two probabilities stand out, and in
    some row two do.
    """
    if targets.layout is not torch.strided or targets.is_nested or not targets.is_floating_point():
        return False
    if targets.ndim != 2 or targets.shape[1] < 3 or not targets.shape[0]:
        return False
    values = targets.detach().float()
    lowest = values.amin(1, keepdim=True)
    peaks = (values > lowest + SLACK / 100).sum(1)
    sums_to_one = ((values.sum(1) - 1).abs() < SLACK).all() & (lowest >= 0).all()
    return bool(sums_to_one & (peaks <= 2).all() & (peaks == 2).any())
