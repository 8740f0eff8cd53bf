"""Find out from its targets whether a batch holds mixtures of examples."""

from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches.structure import list_leaves
from selective_backprop._core.errors import warn

SLACK = 1e-2  # error of a sum of many probabilities in half precision


def warn_of_mixtures(batch: Any) -> None:
    """Warn where a batch that was loaded by index looks like MixUp or CutMix.

    Targets given as two class numbers with a share are not detected, nor are mixtures that show
    only in the inputs.
    """
    if any(_is_mixed(leaf) for leaf in list_leaves(batch) if isinstance(leaf, Tensor)):
        warn(
            "the targets look mixed from two examples each, as by MixUp or CutMix in the collate "
            "function. This strategy knows examples by index, and files what it finds of a "
            "mixture under one of the two. Mix the batches that the loader yields, and take a "
            "strategy that scores candidates, such as selective_backprop."
        )


def _is_mixed(targets: Tensor) -> bool:
    """Return whether these are probabilities `[candidate, class]` of at least three classes.

    At most two stand out in every row, and two do in some row.
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
