"""Rank training examples by how mislabelled they look, and describe each in a table's row."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.types import Float, Float64
from selective_backprop._memory.ledger import Ledger
from selective_backprop.guide._label_doubts import Doubts
from selective_backprop.guide._ranked_examples import Suspects, Table


def audit(evidence: Doubts | Ledger | Tensor | np.ndarray) -> Suspects:
    """Rank training examples by how mislabelled they look, the most suspicious first.

    At each *look* at an example, the model's *doubt* about the label is `(q − p) / (q + p)`, from
    −1 to 1. `p` is the probability of the label, and `q` that of the likeliest other class. The
    *suspicion* of an example is the mean doubt over all looks. The k-th look has weight k, because
    the model knows little at first. One made-up look with a doubt of −1 is added, so that few looks
    give a low suspicion. The model also doubts hard examples with right labels: inspect examples.

    Args:
        evidence: what is known about each example:

            - `Doubts` noted during training: the best evidence, for classification only.
            - Losses, `[look, example]` from the first look to the last, or `[example]` for a single
              look. NaN means that the model did not see the example. Losses must be at least 0 and
              on the scale of a cross-entropy: `p` is taken as exp(−loss), and `q` as 1 − `p`.
              Divide losses on another scale by the loss of a clearly wrong prediction.
            - A loader's `ledger`: the weakest evidence, because it holds only the last losses and
              the last scores of each example. If `SelectiveLoader.wrong_labels` is clear, it says
              how many examples are suspects, and no look is added.

    Raises:
        ConfigurationError: if `evidence` is empty or of another kind, or a loss is negative.

    Source:
        Pleiss et al. 2020, arXiv:2001.10528, "area under the margin": the mean, over all looks, of
        the difference between the label's logit and the highest logit of another class.
    """
    if isinstance(evidence, Doubts):
        return rank_doubts(evidence.on_host())
    if isinstance(evidence, Ledger):
        observed = [column.observe() for column in (evidence.recorded, evidence.scored)]
        epochs = np.concatenate([each.epochs for each in observed])
        losses = np.concatenate([each.scores for each in observed])
        losses = np.take_along_axis(losses, epochs.argsort(0, kind="stable"), 0)  # the older first
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
        return _of_losses(_as_losses(evidence))
    raise ConfigurationError(
        f"a {type(evidence).__name__} cannot be audited. Give Doubts, a tensor or array of losses "
        "[look, example], or loader.ledger. If this is None, the strategy remembers no examples: "
        "note Doubts in your loop, or train with one that does, such as sb.auto()"
    )


def example_table(evidence: Doubts | Suspects | Ledger | Tensor | np.ndarray) -> Table:
    """Return what is known about each example as columns, in the data set's order.

    For `Doubts` and `Suspects`, the columns are:

    - `suspicion`: as in `audit`, and `label_quality`: (1 − suspicion) / 2, in [0, 1].
    - `is_label_issue`: true for the suspects: the first `Suspects.suspicious` ranked examples.
    - `looks`: how many times the model saw the example, as far as is known.
    - `given_label`, the last `predicted_label` and its `confidence`, unless only losses are known.

    cleanlab's `CleanLearning` takes this table as `label_issues`.

    Args:
        evidence: `Doubts`, or the `Suspects` that `audit` or `find_label_issues` found. Or a
            loader's `ledger`: the columns are `loss` and `loss_epoch` (last recorded loss), `score`
            and `score_epoch` (last selection pass), `label` if known, and `times_trained`. Or
            losses, `[look, example]` or `[example]`: the columns are `loss_0`, `loss_1`, …

    Returns:
        Columns by name, arrays `[example]`, `index` first. Unknown is NaN, −1 for whole numbers.
    """
    if isinstance(evidence, Ledger):
        columns = _of_ledger(evidence)
    elif isinstance(evidence, Tensor | np.ndarray):
        columns = {f"loss_{look}": each for look, each in enumerate(_as_losses(evidence))}
    else:
        columns = _of_suspects(evidence if isinstance(evidence, Suspects) else audit(evidence))
    examples = len(next(iter(columns.values()), ()))
    return {"index": np.arange(examples), **columns}


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


def _as_losses(evidence: Tensor | np.ndarray) -> Float64[np.ndarray, "look example"]:
    """Return losses, `[look, example]` or `[example]`, as an array with both axes."""
    if isinstance(evidence, Tensor):
        real = evidence if evidence.is_complex() else evidence.double()  # NumPy has no bfloat16
        evidence = real.numpy(force=True)
    shape, kind = evidence.shape, evidence.dtype
    if kind.kind not in "biuf" or len(shape) not in (1, 2) or not shape[-1]:
        raise ConfigurationError(
            f"an array of shape {shape} and of {kind} holds no losses: expected numbers, [look, "
            "example], or [example] for one look. Of a text, give the mean loss over its tokens"
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


def _of_suspects(suspects: Suspects) -> dict[str, np.ndarray]:
    columns = {
        "suspicion": (suspects.suspicion, np.nan),
        "label_quality": ((1.0 - suspects.suspicion) / 2.0, np.nan),
        "is_label_issue": (np.arange(len(suspects)) < suspects.suspicious, False),
        "looks": (suspects.looks, 0),
        "given_label": (suspects.labels, -1),
        "predicted_label": (suspects.predictions, -1),
        "confidence": (suspects.confidences, np.nan),
    }
    spread = {}
    for name, (values, unknown) in columns.items():
        if values is not None:
            spread[name] = np.full(suspects.examples, unknown, values.dtype)
            spread[name][suspects.indices] = values
    return spread


def _of_ledger(ledger: Ledger) -> dict[str, np.ndarray]:
    columns = {}
    for name, column in (("loss", ledger.recorded), ("score", ledger.scored)):
        if not column.empty:
            observed = column.observe()
            columns |= {name: observed.scores[0], f"{name}_epoch": observed.epochs[0]}
    if not ledger.classes.empty:
        labels = ledger.classes.observe().scores[0]
        columns["label"] = np.where(np.isnan(labels), -1, labels).astype(np.int64)
    return columns | {"times_trained": ledger.selected.numpy()}
