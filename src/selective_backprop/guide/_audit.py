"""Which training examples look mislabelled, by what training saw of them anyway."""

from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._memory.ledger import Ledger
from selective_backprop.guide._doubts import Doubts
from selective_backprop.guide._suspects import Suspects


def audit(evidence: Doubts | Ledger | Tensor | np.ndarray) -> Suspects:
    """Rank training examples by how mislabelled they look, the most suspicious first.

    Each look of the model at an example says how much it doubts the label: of the probability
    that it gives to the label and to the likeliest other class, the other's share minus the
    label's, from −1 to 1. A network learns what most
    labels say before it learns single exceptions by heart, so a wrong label is doubted in many
    epochs, though perhaps no longer in the last. The suspicion is the mean doubt over all looks,
    the k-th of which weighs k, with one more look added at which the model was sure of the label:
    young models know little, few looks are little evidence, and what a strategy keeps choosing is
    looked at often. Above 0 the model believed another class more than the label.

    Hard but rightly labelled examples are doubted, too: look before you relabel or remove.

    Args:
        evidence: what is known of each example.

            - `Doubts` that were noted during training: the best, for classification.
            - Losses, `[look, example]` from the first look to the last, or `[example]`; NaN where
              an example was not looked at.
              They must be at least 0, and of the scale of a cross-entropy: the probability of the
              label is taken to be exp(−loss), and all the rest another class's. Divide others
              by the loss of an example that is as good as wrong.
            - A loader's `ledger`: the last losses alone, which is the weakest evidence. Recorded
              losses and scores of selection passes count as looks of their own.

    Raises:
        ConfigurationError: if it is none of these, empty, or a loss is negative.

    Source:
        The mean over training of how far a label lies below the best other class is Pleiss et al.
        2020, arXiv:2001.10528, "area under the margin", there in logits without bounds, all looks
        alike.
    """
    if isinstance(evidence, Doubts):
        return _of_doubts(evidence)
    if isinstance(evidence, Ledger):
        return _of_losses(_in_order(evidence))
    if isinstance(evidence, Tensor):
        return _of_losses(evidence.detach().cpu().double().numpy())
    if isinstance(evidence, np.ndarray):
        return _of_losses(evidence.astype(np.float64))
    raise ConfigurationError(
        f"a {type(evidence).__name__} cannot be audited; give Doubts, a tensor or array of losses "
        "[look, example], or the ledger of a loader whose strategy remembers examples"
        + (": this one's remembers none" if evidence is None else "")
    )


def _of_doubts(doubts: Doubts) -> Suspects:
    noted: dict[str, Any] = {name: each.numpy() for name, each in doubts.on_host().items()}
    return Suspects.ranked(
        noted["total"] / np.maximum(noted["weight"], 1.0),
        noted["looks"],
        labels=noted["label"],
        predictions=noted["prediction"],
        confidences=noted["confidence"],
    )


def _of_losses(losses: Float[np.ndarray, "*look example"]) -> Suspects:
    if losses.ndim not in (1, 2) or not losses.shape[-1]:
        raise ConfigurationError(
            f"losses of shape {losses.shape}: expected [look, example], or [example] for one look"
        )
    losses = np.atleast_2d(losses)
    seen = ~np.isnan(losses)
    lowest = losses[seen].min(initial=0.0)
    if lowest < 0.0:
        raise ConfigurationError(
            f"a loss is {lowest:.4g}: losses must be at least 0, and near 0 where the model is "
            "right; give cross-entropies, or Doubts"
        )
    weights = seen * seen.cumsum(0)
    doubts = np.where(seen, 1.0 - 2.0 * np.exp(-losses), 0.0)
    mean = (weights * doubts).sum(0) / np.maximum(weights.sum(0), 1)
    return Suspects.ranked(mean, seen.sum(0))


def _in_order(ledger: Ledger) -> Float[np.ndarray, "look example"]:
    """Return what a ledger remembers of each example, recorded or scored, the oldest first."""
    observed = [column.observe() for column in (ledger.recorded, ledger.scored)]
    epochs = np.concatenate([each.epochs for each in observed])
    scores = np.concatenate([each.scores for each in observed])
    return np.take_along_axis(scores, epochs.argsort(0, kind="stable"), 0)
