"""Advise whether to train with `auto`, based on the data and the loss."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset

from selective_backprop._batches.losses import LossFunction, is_no_cross_entropy, label_smoothing
from selective_backprop._core.options import check_whole
from selective_backprop._loader.weighted_loss import WeighingLoss
from selective_backprop._pipeline.source import open_source
from selective_backprop.guide._advice.traits import DataTraits, data_traits

SHORT = 4  # epochs; with wrong labels and no smoothing, `auto` did worse in 4: docs/auto.md
LOADER = "loader = sb.SelectiveLoader(loader, model, {}, sb.auto())"
# With wrong labels `auto` can gain more with it. Elsewhere it only spoils the log-loss.
SMOOTHED = "nn.CrossEntropyLoss(label_smoothing=0.3)"


@dataclass(frozen=True)
class Advice:
    """Whether to train with `auto`, and why. `print(advice)` shows it in at most four lines.

    Attributes:
        strategy: "auto" if the advice is to train with `auto`, otherwise None.
        verdict: the advice in a sentence.
        reasons: at most three lines: the grounds for the verdict, and what was found in the data.
        code: the lines of code that add `auto` to your training; empty if `strategy` is None.
        traits: what `data_traits` found in the training data.
    """

    strategy: str | None
    verdict: str
    reasons: tuple[str, ...]
    code: tuple[str, ...]
    traits: DataTraits

    def __str__(self) -> str:
        return "\n".join((self.verdict, *self.reasons, *self.code))


def advise(
    loader: DataLoader[Any],
    loss_fn: LossFunction | None,
    *,
    epochs: int | None = None,
    data: DataLoader[Any] | Dataset[Any] | None = None,
    seconds: float = 40.0,
) -> Advice:
    """Advise whether to train with `auto`, based on your data and your loss. Nothing is trained.

    Args:
        loader: the loader of the training data.
        loss_fn: as for `SelectiveLoader`.
        epochs: number of epochs that you plan to train, at least 1; None if unknown.
        data: the loader or data set to search for copies, rare classes and wrong labels; by default
            `loader`. If `loader` augments, pass the training data without augmentation.
        seconds: as for `data_traits`, which looks at the data.

    Raises:
        LoaderError: if `SelectiveLoader` cannot wrap the loader, or the loader yields nothing.
    """
    epochs = check_whole("epochs", epochs, optional=True)
    source, barrier = open_source(loader), None
    if loss_fn is not None:
        loss_fn = WeighingLoss.unwrapped(loss_fn)
    if (other := is_no_cross_entropy(loss_fn)) is not None:
        barrier = f"auto reads confidence from a cross-entropy, and {other} is not one."
    elif not source.indexed or source.examples is None:
        barrier = "auto remembers examples by their index, and a stream has no indices."
    traits = data_traits(loader if data is None else data, seconds=seconds)
    if barrier is not None:
        verdict = "Do not take auto: it cannot work on this training."
        elsewhere = "docs/choose.md names strategies for other losses and loaders."
        return Advice(None, verdict, (barrier, elsewhere, f"Data: {traits}."), (), traits)
    smooths = label_smoothing(loss_fn) > 0
    as_made = type(loss_fn) is nn.CrossEntropyLoss and loss_fn.weight is None
    as_made = as_made and (loss_fn.reduction, loss_fn.ignore_index) == ("mean", -100)
    take = SMOOTHED if as_made and not smooths and traits.mislabelled else "loss_fn"
    long = smooths or take == SMOOTHED or epochs is None or epochs > SHORT
    kinds = {
        "labels look wrong": traits.mislabelled and long,
        # With two classes, it never gained: docs/auto.md.
        "some classes are rare": traits.skewed and (traits.classes or 0) > 2,
    }
    if what := " and ".join(kind for kind, holds in kinds.items() if holds):
        verdict = f"Try auto: {what}, and on such data it sometimes gains (docs/auto.md)."
        code = (LOADER.format(take), "loss_fn = loader.loss_fn")
        return Advice("auto", verdict, (f"Data: {traits}.",), code, traits)
    why = "On such data plain training at the same cost does as well (docs/auto.md)."
    if traits.repetitive:
        why += " Many examples are copies: sb.guide.find_copies finds those to leave out."
    if traits.mislabelled:
        why = (
            f"With wrong labels and {SHORT} epochs, auto did worse than plain training "
            "(docs/auto.md): train for longer, or with label smoothing."
        )
    elif traits.wrong_labels is None:
        why = "The labels could not be judged. If you know that many are wrong, try auto."
    verdict = "Do not select: auto gains nothing on data like these."
    return Advice(None, verdict, (why, f"Data: {traits}."), (), traits)
