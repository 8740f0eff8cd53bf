"""Whether to take `auto` on a training, by its data, its losses and what an epoch costs."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from selective_backprop._batches.losses import (
    LossFunction,
    find_losses,
    is_no_cross_entropy,
    label_smoothing,
)
from selective_backprop._core.errors import LossError, SelectionWarning
from selective_backprop._core.options import check_number, check_whole, find_device
from selective_backprop._core.types import LossesOf, OutputsOf
from selective_backprop._loader.weighted_loss import WeighingLoss
from selective_backprop._pipeline.source import open_source
from selective_backprop.guide._advice.epoch_cost import EpochCost, measure_epochs
from selective_backprop.guide._advice.training_copy import TrainingCopy, copy_training, kept_streams
from selective_backprop.guide._advice.traits import DataTraits, data_traits

LOOKING = 0.25  # share of the seconds in which the data are looked at
SHORT = 4  # epochs, in which `auto` lost where labels are wrong and not smoothed: docs/auto.md
SKIPPED = 0.5  # of the examples: an epoch that skips so many must be cheaper than a plain one
SLOWER = 1.15  # times a plain epoch; below it a difference may be of the clock
LOADER = "loader = sb.SelectiveLoader(loader, model, {}, sb.auto())"
SMOOTHED = "nn.CrossEntropyLoss(label_smoothing=0.3)"  # adds to what `auto` gains: docs/auto.md


@dataclass(frozen=True)
class Advice:
    """Whether to train with `auto`, and why; `print` shows this in at most five lines.

    Attributes:
        strategy: name of the strategy to use; None if the advice is not to select.
        verdict: the advice in a sentence.
        reasons: at most three lines on what was measured, here or in docs/auto.md.
        code: the lines of code to write; empty if the advice is not to select.
        traits: what `data_traits` found in the training data.
        cost: seconds per epoch; None if `auto` cannot work here, or a copy of the model diverged.
    """

    strategy: str | None
    verdict: str
    reasons: tuple[str, ...]
    code: tuple[str, ...]
    traits: DataTraits
    cost: EpochCost | None

    def __str__(self) -> str:
        """Return the verdict, the reasons and the code, a line each."""
        return "\n".join((self.verdict, *self.reasons, *self.code))


def advise(
    model: nn.Module,
    loader: DataLoader[Any],
    loss_fn: LossFunction | None,
    *,
    optimizer: Optimizer | None = None,
    epochs: int | None = None,
    data: DataLoader[Any] | Dataset[Any] | None = None,
    seconds: float = 40.0,
    losses: LossesOf | None = None,
    outputs: OutputsOf | None = None,
    device: torch.device | str | int | None = None,
) -> Advice:
    """Advise whether to train with `auto`, based on your data and on epochs timed on this machine.

    First, `advise` looks at the data with `data_traits`. Then it trains a copy of the model, in
    turn with and without `auto`, for a few epochs or as long as `seconds` allows. The model, its
    optimiser and gradients, the loader and all random generators are left as they were. Two things
    are not restored: counters that your data set keeps, and a stream that cannot start again.

    Args:
        model: your model; its copy takes as much memory again.
        loader: the loader of the training data.
        loss_fn: as for `SelectiveLoader`.
        optimizer: the model's optimiser; a copy of it trains the copied model. None for SGD.
        epochs: length of the whole training, at least 1; None if unknown.
        data: the loader or data set to search for copies, rare classes and wrong labels; by default
            `loader`. If `loader` augments, pass the training data without augmentation.
        seconds: about how long `advise` may run, above 0. It always trains a few steps.
        losses: as for `SelectiveLoader`.
        outputs: as for `SelectiveLoader`.
        device: the device to move batches to; by default the model's.

    Raises:
        ConfigurationError: if the model cannot be copied, or an option is invalid.
        LoaderError: if `SelectiveLoader` cannot wrap the loader, or the loader yields nothing.
    """
    seconds = check_number("seconds", seconds, "60 is a minute", above=0)
    epochs = check_whole("epochs", epochs, optional=True)
    source, where = open_source(loader), find_device(model, device)
    if loss_fn is not None:
        loss_fn = WeighingLoss.unwrapped(loss_fn)
    losses_of = find_losses(loss_fn, losses, outputs, excess=True)
    with kept_streams(loader, where), warnings.catch_warnings():
        warnings.simplefilter("ignore", SelectionWarning)  # about the loader that is timed
        warnings.filterwarnings("always", "the loss function returns", SelectionWarning)
        copied = TrainingCopy(*copy_training(model, optimizer), losses_of, where)
        traits = data_traits(loader if data is None else data, seconds=LOOKING * seconds)
        barrier = cost = None
        if (other := is_no_cross_entropy(loss_fn)) is not None:
            barrier = f"It reads confidence from a cross-entropy, and {other} is not one."
        elif not source.indexed or source.examples is None:
            barrier = "It remembers examples by their index, and a stream has no indices."
        else:
            try:
                cost = measure_epochs(copied, source, seconds=(1 - LOOKING) * seconds)
            except LossError as error:
                barrier = f"It needs the loss of each example: {error}"
    smooths = label_smoothing(loss_fn) > 0
    take = SMOOTHED if _is_as_made(loss_fn) and not smooths else "loss_fn"
    return judge(traits, cost, barrier, epochs, take, smooths=smooths or take == SMOOTHED)


def _is_as_made(loss_fn: LossFunction | None) -> bool:
    """Return whether a loss is a cross-entropy of classes with no option but smoothing."""
    if type(loss_fn) is not nn.CrossEntropyLoss or loss_fn.weight is not None:
        return False
    return (loss_fn.reduction, loss_fn.ignore_index) == ("mean", -100)


def judge(
    traits: DataTraits,
    cost: EpochCost | None,
    barrier: str | None,
    epochs: int | None,
    take: str = "loss_fn",
    *,
    smooths: bool = False,
) -> Advice:
    """Return the advice: `auto`, unless a barrier, the data, the length or the cost forbids.

    `take` is the loss to train on, as code, and `smooths` is whether it smooths labels.
    """

    def answer(verdict: str, *why: str, strategy: str | None = None) -> Advice:
        measured = (f"Data: {traits}.", *(() if cost is None else (f"Cost: {cost}.",)))
        code = (LOADER.format(take), "loss_fn = loader.loss_fn") if strategy else ()
        return Advice(strategy, verdict, (*why, *measured), code, traits, cost)

    if barrier is not None:
        elsewhere = "docs/choose.md names strategies for other losses and loaders."
        return answer("Do not take auto: it cannot work on this training.", barrier, elsewhere)
    if cost is None:
        lower = "Its losses grow without end: lower the learning rate and ask again."
        return answer("No verdict: a copy of the model diverged within a few epochs.", lower)
    kinds = {
        "labels look wrong": traits.mislabelled and (smooths or epochs is None or epochs > SHORT),
        "some classes are rare": traits.skewed,
    }
    found = [kind for kind, holds in kinds.items() if holds]
    if not found:
        why = "On such data plain training at the same cost does as well (docs/auto.md)."
        if traits.repetitive:
            why += " Many examples are copies: sb.guide.find_copies finds them, to be left out."
        if traits.mislabelled:
            why = (
                f"With wrong labels, auto did worse in {SHORT} epochs (docs/auto.md): train for "
                "longer, or with label smoothing."
            )
        elif traits.wrong_labels is None:
            why = "The labels could not be judged. If many are wrong, try auto."
        return answer("Do not select: auto gains nothing on data like these.", why)
    if cost.per_example * min(cost.kept, 1 - SKIPPED) >= SLOWER:
        slow = (
            f"With auto an example takes {cost.per_example:.1f} times as long, so an epoch that "
            "skips half of them is slower."
        )
        return answer("Do not select: selecting takes more time here than it saves.", slow)
    what = " and ".join(found)
    return answer(
        f"Try auto: {what}, and on such data it sometimes gains (docs/auto.md).", strategy="auto"
    )
