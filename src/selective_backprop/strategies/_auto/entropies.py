"""Cross-entropies as the rule needs them: `exp(-loss)` is the probability of the target.

Label smoothing, class weights and soft targets raise the lowest possible loss, so the rule reads by
how much a loss exceeds it. Losses that cannot be cross-entropies are refused.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from selective_backprop._batches.losses import (
    OF_CLASSES,
    OF_LABELS,
    LossFunction,
    UnreducedLoss,
    average_examples,
    class_weights,
    label_smoothing,
    name_of,
    option,
)
from selective_backprop._core.errors import LossError, warn
from selective_backprop._core.types import Float

EXAMINED = 1 << 22  # outputs, or those of one row, with which a loss is compared
SLACK = 0.1  # how far rounding may take a cross-entropy below the lowest possible one


class ExcessLosses:
    """Makes one loss per example of `excess_losses`; the first batch is checked and warned of."""

    def __init__(self) -> None:
        self._labels: bool | None = None  # whether the user wrote a loss of yes-or-no labels

    def __call__(self, loss: UnreducedLoss, losses: Any, outputs: Any, targets: Any) -> Any:
        if self._labels is None:
            own = name_of(loss.given)[0] not in OF_CLASSES | OF_LABELS
            self._labels = False  # also if an error is raised now
            check_entropies(average_examples(loss, losses, outputs, targets), targets, own=own)
            self._labels = own and examine_own_loss(losses, outputs, targets)
        if self._labels:
            losses = _excess_of_labels(None, losses, targets)
        elif loss.shifted or (isinstance(targets, Tensor) and targets.is_floating_point()):
            losses = excess_losses(loss.given, losses, outputs, targets)
        if isinstance(losses, Tensor) and losses.ndim == 1:
            return losses  # nearly always
        return average_examples(loss, losses, outputs, targets)


def excess_losses(
    loss_fn: LossFunction, losses: Tensor, outputs: Any, targets: Any
) -> Float[Tensor, "*position"]:
    """Return by how much losses exceed the lowest possible loss, divided by the class weights.

    For a cross-entropy with label smoothing, class weights or probabilities as targets, this is the
    Kullback-Leibler divergence of the model from the target. Losses of a row's yes-or-no labels,
    `[row, label]`, are summed, so that `exp(-loss)` is the probability that the model gives to all
    labels of the row together. Other losses are returned unchanged.
    """
    name = name_of(loss_fn)[0]
    if name in OF_LABELS:
        return _excess_of_labels(loss_fn, losses, targets)
    tensors = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
    if name not in OF_CLASSES or not tensors or outputs.ndim < 2:
        return losses
    smoothed, weights = label_smoothing(loss_fn), class_weights(loss_fn)
    soft = targets.is_floating_point() and targets.shape == outputs.shape
    if not (smoothed or weights is not None or soft):
        return losses
    count = outputs.shape[1]
    each = losses.new_ones(count) if weights is None else weights.to(losses)
    spread = smoothed / count * each  # what smoothing adds to a position's target on each class
    if soft:
        shape = (1, count, *[1] * (outputs.ndim - 2))
        whole = (1.0 - smoothed) * targets * each.view(shape) + spread.view(shape)
        total, entropy = whole.sum(1), -torch.xlogy(whole, whole).sum(1)
    else:
        hit = targets.long().clamp(0, count - 1)  # ignored positions are left out later
        own = spread[hit] + (1.0 - smoothed) * each[hit]
        total = spread.sum() - spread[hit] + own
        others = torch.xlogy(spread, spread)
        entropy = others[hit] - others.sum() - torch.xlogy(own, own)
    lowest = entropy + torch.xlogy(total, total)
    return ((losses - lowest) / total.clamp(min=torch.finfo(losses.dtype).tiny)).clamp(min=0.0)


def _excess_of_labels(loss_fn: LossFunction | None, losses: Tensor, targets: Any) -> Tensor:
    """Return what `excess_losses` returns for binary cross-entropies; None is a plain one."""
    if not isinstance(targets, Tensor) or targets.shape != losses.shape:
        return losses
    given = option(loss_fn, "pos_weight"), option(loss_fn, "weight")
    positive, weight = (losses.new_ones(()) if w is None else w.to(losses) for w in given)
    yes, no = positive * targets, torch.ones_like(targets) - targets
    total = yes + no
    lowest = torch.xlogy(total, total) - torch.xlogy(yes, yes) - torch.xlogy(no, no)
    scale = (weight * total).clamp(min=torch.finfo(losses.dtype).tiny)
    excess = ((losses - weight * lowest) / scale).clamp(min=0.0)
    excess = excess.where(total == total, losses)  # a target that is NaN may be masked
    return excess.sum(1) if excess.ndim == 2 else excess


def check_entropies(losses: Any, targets: Any, *, own: bool = False) -> None:
    """Refuse losses and targets for which `exp(-loss)` cannot be the probability of the target.

    Targets, if any, must be probabilities, or NaN for unknown labels. No loss may be below the
    lowest possible cross-entropy. If the user wrote the loss (`own`), this may be above 0: soft
    targets may be classes or yes-or-no labels, their losses summed or averaged, of which the mean
    entropy of yes-or-no labels is the lowest. The CPU waits for the GPU.
    """
    found, lowest = None, 0.0
    soft = isinstance(targets, Tensor) and targets.is_floating_point()
    # `check_losses` refuses what is not one loss per example.
    each = losses if isinstance(losses, Tensor) and losses.ndim == 1 else torch.zeros(0)
    if own and soft and len(each) and targets.shape[:1] == each.shape:
        yes = targets.detach().float().reshape(len(targets), -1).clamp(0.0, 1.0)
        no = torch.ones_like(yes) - yes
        lowest = -(torch.xlogy(yes, yes) + torch.xlogy(no, no)).mean(1)
    below = each[each < lowest - SLACK]
    if soft and bool(((targets < -SLACK) | (targets > 1.0 + SLACK)).any()):
        low, high = map(float, targets[~targets.isnan()].aminmax())
        found = f"targets from {low:.3g} to {high:.3g} are no probabilities"
    elif len(below):
        least = float(below.min())
        found = f"losses as low as {least:.3g} are below any cross-entropy of these targets"
    if found is not None:
        raise LossError(
            f"{found}. But the strategy takes exp(-loss) for the probability of the target. Use a "
            "cross-entropy whose targets are classes (as integers) or probabilities. For other "
            "losses, such as those of regression, use a strategy that only ranks them: "
            "recorded_sb(rate=1 / 2)"
        )


def examine_own_loss(losses: Any, outputs: Any, targets: Any) -> bool:
    """Return whether the user's own loss is a cross-entropy of labels; warn if it seems to be none.

    Some rows are compared with the cross-entropies of labels, classes or next tokens, each or their
    sum or mean over a row. Warn, too, of what cannot be compared, such as targets in a dict.
    """
    given, compared = (losses, outputs, targets), False
    tensors = all(isinstance(each, Tensor) and each.ndim for each in given)
    if tensors and len({*map(len, given)}) == 1:
        rows = max(1, EXAMINED * len(outputs) // max(1, outputs.numel()))
        losses, outputs, targets = (each.detach()[:rows] for each in given)
        rounding = max(1e-3, *(16 * torch.finfo(each.dtype).eps for each in (losses, outputs)))
        for entropies, kept in _entropies(outputs.float(), targets):
            compared, forms = True, [(entropies, kept)]
            if entropies.ndim > 1:
                total = entropies.where(kept, 0.0).flatten(1).sum(1)
                count = kept.flatten(1).sum(1)
                forms += [(total, count > 0), (total / count, count > 0)]
            for each, known in forms:
                if losses.numel() == each.numel():
                    own = losses.float().reshape(each.shape)[known]
                    if torch.allclose(own, each[known], rtol=rounding, atol=rounding):
                        return losses.shape == outputs.shape == targets.shape
    said = "returns no cross-entropies" if compared else "cannot be compared with cross-entropies"
    warn(
        f"the loss function {said} of these outputs and targets, but the strategy takes exp(-loss) "
        "for the probability of the targets. Pass label smoothing and "
        "weights to torch.nn.CrossEntropyLoss or BCEWithLogitsLoss: what they add is not recorded. "
        "With another loss, pass with_selection=True to the loader, train on "
        "(selection.weights * losses).mean(), and call loader.record(selection, cross_entropies, "
        "targets=targets)"
    )
    return False


def _entropies(outputs: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield cross-entropies that outputs and targets may mean, `[row, …]`, and which of them count.

    Outputs are logits or, if the model ends in a sigmoid or softmax, probabilities.
    """
    if outputs.numel() == targets.numel() and len(outputs) == len(targets):
        given, yes = outputs.reshape(targets.shape), targets.float()
        kept = ~yes.isnan()  # NaN for unknown labels
        if bool(((yes >= 0) & (yes <= 1))[kept].all()):
            logits = logsigmoid(given), logsigmoid(-given)
            for sure, unsure in (logits, (_log(given), _log(1.0 - given))):
                yield -yes * sure - (1.0 - yes) * unsure, kept
            if given.ndim > 1:  # probabilities of classes
                for likely in (given.log_softmax(1), _log(given)):
                    found = -(yes * likely).sum(1)
                    yield found, kept.all(1)
    if targets.is_floating_point() or outputs.ndim != targets.ndim + 1:
        return
    last = outputs.movedim(-1, 1)  # of tokens, perhaps the next ones
    pairs = [(outputs, targets), (last, targets)]
    if targets.ndim > 1:
        pairs.append((last[:, :, :-1], targets[:, 1:]))
    for scored, labels in pairs:
        if scored[:, 0].shape == labels.shape and scored.shape[1] > 1:
            kept = (labels >= 0) & (labels < scored.shape[1])  # False for ignored positions
            hit = labels.where(kept, 0).long().unsqueeze(1)
            for likely in (scored.log_softmax(1), _log(scored)):
                yield -likely.gather(1, hit).squeeze(1), kept


def _log(probabilities: Tensor) -> Tensor:
    return probabilities.clamp(torch.finfo(torch.float32).tiny, 1.0).log()
