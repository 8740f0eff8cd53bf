"""Advise whether to train with `auto`, based on the data, the loss and the time of an epoch."""

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
from selective_backprop._pipeline.resume_point import kept_streams
from selective_backprop._pipeline.source import open_source
from selective_backprop.guide._advice.epoch_cost import EpochCost, measure_epochs
from selective_backprop.guide._advice.training_copy import TrainingCopy, copy_training
from selective_backprop.guide._advice.traits import DataTraits, data_traits
from selective_backprop.strategies._auto.entropies import ExcessLosses

LOOKING = 0.25  # share of `seconds` that is spent on looking at the data
SHORT = 4  # epochs; with wrong labels and no smoothing, `auto` did worse in 4: docs/auto.md
SKIPPED = 0.5  # share of examples; an epoch that skips this many must be faster than a plain one
SLOWER = 1.15  # times a plain epoch; a smaller difference may be timing noise
LOADER = "loader = sb.SelectiveLoader(loader, model, {}, sb.auto())"
# With wrong labels `auto` can gain more with it. Elsewhere it only spoils the log-loss.
SMOOTHED = "nn.CrossEntropyLoss(label_smoothing=0.3)"


@dataclass(frozen=True)
class Advice:
    """Whether to train with `auto`, and why. `print(advice)` shows it in at most five lines.

    Attributes:
        strategy: "auto" if the advice is to train with `auto`, otherwise None.
        verdict: the advice in a sentence.
        reasons: at most three lines: the grounds for the verdict, and what was measured.
        code: the lines of code that add `auto` to your training; empty if `strategy` is None.
        traits: what `data_traits` found in the training data.
        cost: seconds per epoch. None if the loss or loader rules out `auto`, or training diverged.
    """

    strategy: str | None
    verdict: str
    reasons: tuple[str, ...]
    code: tuple[str, ...]
    traits: DataTraits
    cost: EpochCost | None

    def __str__(self) -> str:
        """Return the verdict, the reasons and the code, each on a line of its own."""
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

    First, `advise` looks at the data with `data_traits`. Then it trains a copy of the model for a
    few epochs, alternately with and without `auto`, and stops early when `seconds` have passed. The
    model, its optimiser and gradients, the loader and all random generators are left as they were.
    If reading changes something in your data set, such as a counter, it stays changed.

    Args:
        model: your model. Its copy needs as much memory as the model itself.
        loader: the loader of the training data.
        loss_fn: as for `SelectiveLoader`.
        optimizer: the model's optimiser; a copy of it trains the copied model. None uses SGD.
        epochs: number of epochs that you plan to train, at least 1; None if unknown.
        data: the loader or data set to search for copies, rare classes and wrong labels; by default
            `loader`. If `loader` augments, pass the training data without augmentation.
        seconds: about how many seconds `advise` may run, above 0. A few training steps always run.
        losses: as for `SelectiveLoader`.
        outputs: as for `SelectiveLoader`.
        device: the device to move batches to; by default the model's device.

    Raises:
        ConfigurationError: if the model cannot be copied, or an option is invalid.
        LoaderError: if `SelectiveLoader` cannot wrap the loader, or the loader yields nothing.
    """
    seconds = check_number("seconds", seconds, "60 is a minute", above=0)
    epochs = check_whole("epochs", epochs, optional=True)
    source, where = open_source(loader), find_device(model, device)
    if loss_fn is not None:
        loss_fn = WeighingLoss.unwrapped(loss_fn)
    losses_of = find_losses(loss_fn, losses, outputs, average=ExcessLosses(), marks=False)
    with kept_streams(loader, where), warnings.catch_warnings():
        warnings.simplefilter("ignore", SelectionWarning)  # about the loader for timing
        warnings.filterwarnings("always", "the loss function returns", SelectionWarning)
        copied = TrainingCopy(*copy_training(model, optimizer), losses_of, where)
        traits = data_traits(loader if data is None else data, seconds=LOOKING * seconds)
        barrier = cost = None
        if (other := is_no_cross_entropy(loss_fn)) is not None:
            barrier = f"auto reads confidence from a cross-entropy, and {other} is not one."
        elif not source.indexed or source.examples is None:
            barrier = "auto remembers examples by their index, and a stream has no indices."
        else:
            try:
                cost = measure_epochs(copied, source, seconds=(1 - LOOKING) * seconds)
            except LossError as error:
                barrier = f"auto needs the loss of each example: {error}"
    smooths = label_smoothing(loss_fn) > 0
    suggested = traits.mislabelled and _is_as_made(loss_fn) and not smooths
    take = SMOOTHED if suggested else "loss_fn"
    return judge(traits, cost, barrier, epochs, take, smooths=smooths or suggested)


def _is_as_made(loss_fn: LossFunction | None) -> bool:
    """Return whether a loss is a `CrossEntropyLoss` with no option set except smoothing."""
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
    """Return the advice: `auto`, unless the data, the length, the cost or `barrier` speak against.

    `take` is the code of the loss to train on. `smooths` says whether this loss smooths labels.
    """

    def answer(verdict: str, *why: str, strategy: str | None = None) -> Advice:
        measured = (f"Data: {traits}.", *(() if cost is None else (f"Cost: {cost}.",)))
        code = (LOADER.format(take), "loss_fn = loader.loss_fn") if strategy else ()
        return Advice(strategy, verdict, (*why, *measured), code, traits, cost)

    if barrier is not None:
        elsewhere = "docs/choose.md names strategies for other losses and loaders."
        return answer("Do not take auto: it cannot work on this training.", barrier, elsewhere)
    if cost is None:
        lower = "Its losses kept growing: lower the learning rate and ask again."
        return answer("No verdict: a copy of the model diverged within a few epochs.", lower)
    kinds = {
        "labels look wrong": traits.mislabelled and (smooths or epochs is None or epochs > SHORT),
        # With two classes, it never gained: docs/auto.md.
        "some classes are rare": traits.skewed and (traits.classes or 0) > 2,
    }
    found = [kind for kind, holds in kinds.items() if holds]
    if not found:
        why = "On such data plain training at the same cost does as well (docs/auto.md)."
        if traits.repetitive:
            why += " Many examples are copies: leave out those that sb.guide.find_copies finds."
        if traits.mislabelled:
            why = (
                f"With wrong labels and {SHORT} epochs, auto did worse than plain training "
                "(docs/auto.md): train for longer, or with label smoothing."
            )
        elif traits.wrong_labels is None:
            why = "The labels could not be judged. If you know that many are wrong, try auto."
        return answer("Do not select: auto gains nothing on data like these.", why)
    if cost.per_example * min(cost.kept, 1 - SKIPPED) >= SLOWER:
        slow = (
            f"With auto, each example takes {cost.per_example:.1f} times as long, so even an epoch "
            "that skips half of the examples is slower."
        )
        return answer("Do not select: selecting takes more time here than it saves.", slow)
    what = " and ".join(found)
    return answer(
        f"Try auto: {what}, and on such data it sometimes gains (docs/auto.md).", strategy="auto"
    )
