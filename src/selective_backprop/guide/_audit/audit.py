"""Rank training examples by how mislabelled they look, from what training computed anyway."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.types import Float, Float64
from selective_backprop._memory.ledger import Ledger
from selective_backprop.guide._audit.label_doubts import Doubts
from selective_backprop.guide._audit.ranked_examples import Suspects


def audit(evidence: Doubts | Ledger | Tensor | np.ndarray) -> Suspects:
    """Rank training examples by how mislabelled they look, the most suspicious first.

    A *look* is one time that the model sees an example. At each look, the model's *doubt* about the
    label is `(q − p) / (q + p)`, from −1 to 1. `p` is the probability of the label, and `q` is the
    probability of the likeliest other class. A network learns general rules before it memorises
    exceptions. It therefore doubts a wrong label in many epochs, but perhaps not in the last one.

    The *suspicion* of an example is the mean doubt over all looks. The k-th look has weight k,
    because the model knows little at first. One made-up look with a doubt of −1 is added, so that
    an example with few looks gets a low suspicion. A suspicion above 0 means that, on average over
    the looks, the model gave another class more probability than the label.

    The model also doubts hard examples with right labels: inspect an example before you relabel or
    remove it.

    Args:
        evidence: what is known about each example:

            - `Doubts` noted during training: the best evidence, for classification only.
            - Losses, `[look, example]` from the first look to the last, or `[example]` for a single
              look. NaN means that the model did not see the example. Losses must be at least 0 and
              on the scale of a cross-entropy: `p` is taken as exp(−loss), and `q` as 1 − `p`.
              Divide losses on another scale by the loss of a clearly wrong prediction.
            - A loader's `ledger`: the weakest evidence, because it gives few looks at each example:
              the last losses recorded in training, and the last scores of selection passes. If
              `SelectiveLoader.wrong_labels` is clear, it says how many examples are suspects, and
              no look is added.

    Raises:
        ConfigurationError: if `evidence` is empty or of another kind, or a loss is negative.

    Source:
        Pleiss et al. 2020, arXiv:2001.10528, "area under the margin". The authors average, over
        all looks, the difference between the label's logit and the highest logit of another class.
    """
    if isinstance(evidence, Doubts):
        return rank_doubts(evidence.on_host())
    if isinstance(evidence, Ledger):
        losses = _in_order(evidence)
        if np.isnan(losses).all():
            raise ConfigurationError(
                "the ledger holds no losses yet. Training fills it; with several processes, it is "
                "filled when an epoch ends"
            )
        wrong = evidence.wrong_labels
        clear = wrong is not None and wrong.is_clear
        labelled = np.count_nonzero(~np.isnan(losses).all(0))
        return _of_losses(losses, round(wrong.share * labelled) if clear else None)
    if isinstance(evidence, Tensor | np.ndarray):
        return _of_losses(as_losses(evidence))
    raise ConfigurationError(
        f"a {type(evidence).__name__} cannot be audited. Give Doubts, a tensor or array of losses "
        "[look, example], or the ledger of a loader whose strategy remembers examples"
        + (" (this one remembers none)" if evidence is None else "")
    )


def rank_doubts(doubts: Mapping[str, Tensor], estimated: int | None = None) -> Suspects:
    """Rank examples by what `Doubts.on_host` returned; `estimated` is as in `Suspects`."""
    noted: dict[str, Any] = {name: each.numpy() for name, each in doubts.items()}
    return Suspects.ranked(
        noted["total"] / np.maximum(noted["weight"], 1.0),
        noted["looks"],
        labels=noted["label"],
        predictions=noted["prediction"],
        confidences=noted["confidence"],
        estimated=estimated,
    )


def as_losses(evidence: Tensor | np.ndarray) -> Float64[np.ndarray, "look example"]:
    """Return losses, `[look, example]` or `[example]`, as an array with both axes."""
    if isinstance(evidence, Tensor):
        real = evidence if evidence.is_complex() else evidence.double()  # NumPy has no bfloat16
        evidence = real.numpy(force=True)
    if evidence.dtype.kind not in "biuf":
        raise ConfigurationError(
            f"an array of {evidence.dtype} holds no losses. Give a number for each example; for a "
            "text, the mean loss over its tokens"
        )
    if evidence.ndim not in (1, 2) or not evidence.shape[-1]:
        raise ConfigurationError(
            f"losses of shape {evidence.shape}: expected [look, example], or [example] for one look"
        )
    return np.atleast_2d(evidence).astype(np.float64)


def _of_losses(losses: Float[np.ndarray, "look example"], estimated: int | None = None) -> Suspects:
    seen = ~np.isnan(losses)
    lowest = losses[seen].min(initial=0.0)
    if lowest < 0.0:
        raise ConfigurationError(
            f"a loss is {lowest:.4g}: losses must be at least 0, and near 0 if the model is right. "
            "Give cross-entropies, or Doubts"
        )
    weights = seen * seen.cumsum(0)
    doubts = np.where(seen, 1.0 - 2.0 * np.exp(-losses), 0.0)
    mean = (weights * doubts).sum(0) / np.maximum(weights.sum(0), 1)
    return Suspects.ranked(mean, seen.sum(0), estimated=estimated)


def _in_order(ledger: Ledger) -> Float[np.ndarray, "look example"]:
    """Return the recorded loss and the score of each example in a ledger, the older first."""
    observed = [column.observe() for column in (ledger.recorded, ledger.scored)]
    epochs = np.concatenate([each.epochs for each in observed])
    scores = np.concatenate([each.scores for each in observed])
    return np.take_along_axis(scores, epochs.argsort(0, kind="stable"), 0)
