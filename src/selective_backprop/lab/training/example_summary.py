"""What is kept of a run's examples when it ends: numbers of all, lives and portraits of a few."""

import numpy as np
from jaxtyping import Int64

from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.data.thumbnails import portraits
from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.training.example_log import ExampleLog

EXTREMES = 18  # examples that are shown as the most selected, and as many as the least
_SAME_FOR_ALL = 32  # lives that every run of a data set has
_OWN = (("most", 8), ("least", 8), ("hardest", 16))  # lives that are this run's choice


def history_of(follower: ExampleLog, data: ImageData, *, passes: float) -> ExampleHistory:
    """Return what became of a run's examples.

    Args:
        follower: that followed them.
        data: that they are of.
        passes: how often an example came up for training.
    """
    follower.settle()
    ends = extremes(follower.selected, follower.loss_mean)
    followed = np.zeros(len(follower.selected), bool)
    followed[follower.followed] = True
    lives = [follower.followed[:_SAME_FOR_ALL]]
    lives += [ends[name][followed[ends[name]]][:count] for name, count in _OWN]
    chosen = np.unique(np.concatenate(lives))
    shown = np.unique(np.concatenate([ends["most"][:EXTREMES], ends["least"][:EXTREMES], chosen]))
    clean = data.train_clean_labels
    return ExampleHistory(
        passes=passes,
        class_name=data.class_names,
        label=data.train_labels.cpu().numpy(),
        label_clean=clean.cpu().numpy() if clean is not None and data.flipped.any() else None,
        prediction=follower.prediction,
        confidence=follower.confidence,
        selected=follower.selected,
        scored=follower.scored,
        loss_last=follower.loss_last,
        loss_mean=follower.loss_mean,
        loss_max=follower.loss_max,
        epoch_last=follower.epoch_last,
        looks=follower.looks,
        doubt=follower.doubt,
        **follower.spread(),  # ty: ignore[invalid-argument-type]
        **follower.lives(chosen),
        portrait_index=shown,
        portrait_image=portraits(data, shown),
    )


def extremes(
    selected: np.ndarray, loss_mean: np.ndarray
) -> dict[str, Int64[np.ndarray, " example"]]:
    """Order examples by how often they were selected, and by how hard they were.

    Of examples that were selected equally often, the harder one counts as selected more.

    Args:
        selected: how often each example was trained on.
        loss_mean: its mean loss; NaN, for one that was never seen, comes last.

    Returns:
        All indices in three orders: "most" and "least" selected first, and "hardest" first.
    """
    return {
        "most": np.lexsort((-loss_mean, -selected)),
        "least": np.lexsort((loss_mean, selected)),
        "hardest": np.argsort(-loss_mean, kind="stable"),
    }
