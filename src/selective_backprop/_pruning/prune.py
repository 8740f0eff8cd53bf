"""Keep a part of a data set, chosen once by the examples' scores."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError, warn
from selective_backprop._core.options import check_number
from selective_backprop._core.types import Int, Num
from selective_backprop._pruning.example_scores import ExampleScores
from selective_backprop._sampling.subset import Subset, kind_of


def prune(
    scores: ExampleScores | Num[Tensor, " example"],
    keep: float,
    *,
    labels: Int[Tensor, " example"] | np.ndarray | Sequence[Any] | None = None,
) -> Subset:
    """Keep the highest-scoring part of a data set.

    The choice is deterministic: if scores tie at the limit, the examples with the lower indices are
    kept. To keep the lowest scores, pass `-scores.scores`.

    Args:
        scores: what `el2n_scores` returns, or a tensor of one score per example.
        keep: the share of the examples to keep, in (0, 1]; at least one example is kept.
        labels: the class of every example, to warn of classes that lose all their examples.

    Returns:
        The kept examples, with all scores and the cost of scoring.

    Raises:
        ConfigurationError: if `keep` is out of range, if the scores are not one finite number per
            example, or if the labels are not one whole number per example.

    Source:
        Paul et al. 2021, arXiv:2107.07075, section 3.
    """
    source, cost = "given scores", 0.0
    if isinstance(scores, ExampleScores):
        source, cost, scores = scores.source, scores.cost, scores.scores
    if not isinstance(scores, Tensor) or scores.ndim != 1 or not len(scores):
        raise ConfigurationError(
            "scores must be a tensor of one finite number for each example of the data set, or "
            f"what el2n_scores returns; got {kind_of(scores)}"
        )
    examples = scores.shape[0]
    share = check_number("keep", keep, "0.5 keeps a half", above=0, most=1)
    count = max(1, round(share * examples))
    # A stable sort leaves ties in the order of their indices.
    kept = scores.sort(stable=True, descending=True).indices[:count]
    source = f"{source}, kept the highest {100 * count / examples:.4g} %"
    subset = Subset(kept, examples, scores=scores, source=source, cost=cost)
    if labels is not None:
        _warn_of_lost_classes(labels, subset)
    return subset


def _warn_of_lost_classes(labels: object, subset: Subset) -> None:
    with suppress(TypeError, ValueError, RuntimeError):  # refused below
        labels = torch.as_tensor(labels if isinstance(labels, Tensor) else np.asarray(labels)).cpu()
    shape = (subset.examples,)
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.shape != shape:
        raise ConfigurationError(
            f"labels must be one whole number for each of {subset.examples} examples, got "
            f"{kind_of(labels)}"
        )
    lost = sorted({*labels.tolist()} - {*labels[subset.indices].tolist()})
    if lost:
        named = ", ".join(map(str, lost[:10])) + f" and {len(lost) - 10} more" * (len(lost) > 10)
        warn(
            f"no example of class {named} is kept, so the model cannot learn it. Keep a larger "
            "share, or choose examples by another score."
        )
