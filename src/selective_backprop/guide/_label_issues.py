"""Find labels that look wrong to a trained model, in one pass over the data."""

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler

from selective_backprop._batches.losses import (
    LossFunction,
    apply_to_pair,
    ignored_label,
    is_no_cross_entropy,
    label_smoothing,
)
from selective_backprop._batches.structure import move_batch
from selective_backprop._core.errors import ConfigurationError, LoaderError, warn
from selective_backprop._core.isolation import KeptModel, unwrapped
from selective_backprop._core.options import check_instance, find_device
from selective_backprop._core.types import Float, OutputsOf
from selective_backprop._loader.weighted_loss import WeighingLoss
from selective_backprop._pipeline.index_sampler import list_keys
from selective_backprop._pipeline.row_checks import check_order
from selective_backprop._pipeline.rows import kept_streams
from selective_backprop._pipeline.source import open_source
from selective_backprop.guide._audit import rank_doubts
from selective_backprop.guide._label_doubts import Doubts, look_at
from selective_backprop.guide._ranked_examples import Suspects

SURELY = 3.0  # standard errors
# The odds of another class are multiplied by this power of the share of the label's examples that
# are confidently taken for that class. It was chosen on Fashion-MNIST and MNIST.
CONFUSED = 0.5


def find_label_issues(
    model: nn.Module,
    loader: Any,
    loss_fn: LossFunction,
    *,
    outputs: OutputsOf | None = None,
    device: torch.device | str | int | None = None,
) -> Suspects:
    """Rank the labels of a data set by how wrong they look to a trained classifier.

    Each example goes through the model once, in eval mode. This costs a third of a training epoch.

    `Suspects.suspicious` estimates how many labels are wrong: the number of examples for which the
    model predicts another class, `c`, with at least the mean probability of `c` over all examples
    that are labelled `c`. The suspicion of an example is the model's doubt about its label, as
    `audit` defines it, raised if the model often predicts `c` so surely for the same label.

    **Take a model that was not trained on these labels**, such as one trained on the other half of
    the data. You get a warning if it has probably learned them, and so does not find wrong ones.

    Args:
        model: the trained classifier.
        loader: yields the examples to judge, not augmented. It may shuffle and leave some out.
        loss_fn: the cross-entropy of the training; labels of its `ignore_index` are not judged.
        outputs: `callable(model, batch)` that returns logits `[row, class]` and class numbers
            `[row]`. By default, a batch `(inputs, targets)` gives `(model(inputs), targets)`.
        device: the device that batches are moved to; by default the model's device.

    Returns:
        The ranked examples; `top()` are the suspects, and `rest()` is the data set without them.

    Raises:
        ConfigurationError: if the task is not a classification with a cross-entropy.
        LoaderError: if the loader cannot go through its data set by index.

    Source:
        Northcutt et al. 2021, arXiv:1911.00068, equations 1 and 2, without scaling to class sizes.
    """
    loss_fn = WeighingLoss.unwrapped(loss_fn)
    if (other := is_no_cross_entropy(loss_fn)) is not None:
        raise ConfigurationError(
            f"{other} is no cross-entropy, but find_label_issues needs the probabilities of "
            "classes. For other tasks give losses to audit"
        )
    source, place, model = open_source(loader), find_device(model, device), unwrapped(model)
    if source.attribute != "batch_sampler" or source.examples is None:
        raise LoaderError(
            "find_label_issues needs the index of each example, and this loader yields a stream: "
            "give it a data set of known length and a batch size"
        )
    ignored, smoothing = ignored_label(loss_fn), label_smoothing(loss_fn)
    doubts, surplus = Doubts(source.examples), []
    kept = kept_streams(source.loader, place), KeptModel(model).kept(evaluates=True)
    with torch.no_grad(), kept[0], kept[1]:
        sampler: Any = source.loader.batch_sampler
        # Through the inner sampler, so that `drop_last` leaves nothing out.
        plain = type(sampler) is BatchSampler
        keys = list_keys(list(sampler.sampler if plain else chain.from_iterable(sampler)))
        if not isinstance(keys, Tensor):
            raise LoaderError("find_label_issues needs a sampler of indices, as whole numbers")
        batches = keys.unique().split(source.batch_size or 1)
        loaded = source.copy_with([each.tolist() for each in batches])
        for indices, batch in zip(batches, loaded, strict=True):
            if indices is batches[0]:
                check_order(batch, indices.tolist(), source.loader)
            batch = batch if place is None else move_batch(batch, place)
            found = (outputs or apply_to_pair)(model, batch)
            judged, logits, labels = _judged(indices, *found, ignored)
            doubts.note(judged, logits, labels)
            chances = (logits.float().softmax(1) - smoothing / logits.shape[1]) / (1.0 - smoothing)
            own = chances.gather(1, labels.long().unsqueeze(1)).squeeze(1)
            surplus.append((own - chances.square().sum(1)).cpu())  # above 0: likelier than expected
    _warn_if_learned(torch.cat(surplus))
    return _rank(doubts.on_host())


def _judged(indices: Tensor, outputs: Any, labels: Any, ignored: int) -> tuple[Tensor, ...]:
    """Return the rows of a batch whose labels are judged; refuse labels that are not classes."""
    hint = "outputs=callable(model, batch) -> (logits, class numbers)"
    check_instance("the model's outputs", outputs, Tensor, hint)
    check_instance("the targets", labels, Tensor, hint)
    look_at(outputs, labels.clamp(0, 0))  # checks only shapes and types
    judged = labels != ignored
    labels, classes = labels[judged], outputs.shape[1]
    if ((labels < 0) | (labels >= classes)).any():
        raise ConfigurationError(
            f"labels from {labels.min()} to {labels.max()}, and outputs of {classes} classes: "
            f"class numbers from 0 to {classes - 1} are needed"
        )
    return indices[judged.cpu()], outputs[judged], labels


def _warn_if_learned(surplus: Float[Tensor, " row"]) -> None:
    """Warn if labels are clearly likelier than the model expects, as after training on them."""
    values = surplus.double().numpy()
    if len(values) and values.mean() >= SURELY * values.std() / len(values) ** 0.5:
        warn(
            "the model is right about more labels than its own probabilities say. If it was "
            "trained on these labels, it has learned the wrong ones too and does not find them: "
            "use a model trained on other examples, such as the other half of the data. If it was "
            "not, ignore this warning"
        )


def _rank(noted: dict[str, Tensor]) -> Suspects:
    """Rank examples by one look at each, and estimate how many labels are wrong."""
    judged = noted["looks"] > 0
    names = ("total", "label", "prediction", "confidence")
    doubts, labels, predictions, sure = (noted[name][judged] for name in names)
    differ = predictions != labels
    classes = 1 + max(int(noted[name].max()) for name in ("label", "prediction"))
    # A doubt is (q - p) / (q + p). If it is above 0, q is the confidence.
    own = torch.where(differ, sure * (1.0 - doubts) / (1.0 + doubts), sure)
    sums, sizes = (labels.bincount(each, minlength=classes) for each in (own, None))
    usual = sums / sizes  # NaN for a class without labels; nothing exceeds NaN
    confident = differ & (sure >= usual[predictions.long()])
    # The share of a label's examples that are confidently taken for a class, always above 0.
    pairs = (labels.long() * classes + predictions).unique(return_inverse=True)[1]
    shares = (pairs.bincount(confident.double()) + 1.0)[pairs] / (sizes[labels.long()] + classes)
    raised = CONFUSED * (shares.log() - shares[differ].log().mean())
    # The logarithm of the odds q / p is twice the inverse hyperbolic tangent of the doubt.
    changed = torch.tanh(torch.atanh(doubts) + raised / 2.0).float()
    noted["total"][judged] = torch.where(differ, changed, doubts)
    return rank_doubts(noted, int(confident.sum()))
