"""Whether selection pays on a model, its data and this machine, measured within a budget."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from selective_backprop._batches.losses import LossFunction, is_no_cross_entropy
from selective_backprop._core.errors import SelectionWarning
from selective_backprop._core.options import check_number, check_whole, find_device
from selective_backprop._core.types import LossesOf, OutputsOf
from selective_backprop._pipeline.source import open_source
from selective_backprop.guide._budget import Budget
from selective_backprop.guide._data_traits import DataTraits, data_traits
from selective_backprop.guide._forecast import Forecast, foresee
from selective_backprop.guide._inquiry import Inquiry
from selective_backprop.guide._mixes import BASELINE, list_mixes
from selective_backprop.guide._recommend import Recommendation, recommend
from selective_backprop.guide._redundancy import Redundancy
from selective_backprop.guide._rounds import Median, summarise
from selective_backprop.guide._subject import Subject, kept_streams, take_subject

A_MINUTE = 60.0  # seconds that looking at the data may take, at most
LOOKING = 0.25  # share of the budget that it may take

DIVERGED = (
    "the copy diverged in its warm-up: its losses, or their gradients, are not finite; lower the "
    "learning rate"
)


@dataclass(frozen=True)
class ScorerOutcome:
    """What a cheap scorer costs and how far it agrees with exact scores.

    Attributes:
        cost: of scoring, relative to exact scoring of the same candidates.
        correlation: Spearman's, with exact scores; NaN if no exact score is finite.
        overlap: share of the candidates with the highest exact scores that it finds; NaN likewise.
    """

    cost: Median
    correlation: float
    overlap: float


@dataclass(frozen=True)
class Advice:
    """Whether selection pays, and the measurements behind that.

    Attributes:
        config: what was measured, and how.
        rounds: how many rounds of measurements there were.
        seconds: the wall seconds that the advice took.
        shares: each phase's share of a traditional epoch; they add up to 1.
        backward: the cost of a backward pass, in training forwards.
        scoring: the cost of scoring a candidate exactly, relative to training on it.
        scorers: what cheap scorers cost and how far they agree, by name.
        traits: what the training data are made up of.
        redundancy: where losses and gradients lie; None if the budget left no time, or the copy
            diverged.
        forecasts: what an epoch of each strategy would cost, by name.
        recommendation: what to do.
        left_out: what did not fit into the budget.
        remarks: by scorer, a warning or note, or why it is missing; also why losses and gradients
            could not be looked at.
    """

    config: Mapping[str, Any]
    rounds: int
    seconds: float
    shares: Mapping[str, float]
    backward: Median
    scoring: Median
    scorers: Mapping[str, ScorerOutcome]
    traits: DataTraits
    redundancy: Redundancy | None
    forecasts: Mapping[str, Forecast]
    recommendation: Recommendation
    left_out: tuple[str, ...]
    remarks: Mapping[str, str]


def advise(
    model: nn.Module,
    loader: DataLoader[Any],
    loss_fn: LossFunction | None,
    *,
    optimizer: Optimizer | None = None,
    rate: float = 1 / 3,
    budget: float = 120.0,
    epochs: int | None = None,
    data: DataLoader[Any] | Dataset[Any] | None = None,
    losses: LossesOf | None = None,
    outputs: OutputsOf | None = None,
    examples: int | None = None,
    autocast: torch.dtype | None = None,
    pad: Mapping[str, float] | None = None,
    whole: Collection[str] = (),
    device: torch.device | str | int | None = None,
) -> Advice:
    """Say whether selection pays on a model, its data and this machine, and what it would cost.

    First the data are looked at, as by `data_traits`. Then a copy of the model is trained briefly,
    and real loops of a few batches each are timed in interleaved rounds: traditional ones, and ones
    that select before or after loading. Every strategy's epoch is computed from these. The model,
    its optimiser and gradients, the loader and all random streams stay as they were. Two things do
    not: counters that a data set keeps itself, and a stream that cannot start again.

    Args:
        model: the model in training; its copy takes as much memory again.
        loader: of its training data.
        loss_fn: as for `SelectiveLoader`.
        optimizer: the model's, whose steps are timed on the copy; None for SGD.
        rate: share of the candidates that selection keeps, in (0, 1].
        budget: wall seconds. What does not fit is named in `left_out`; a round that has begun is
            finished.
        epochs: epochs of the whole training, at least 1; None leaves `Forecast.training` None.
        data: a loader or data set in which to look for copies, rare classes and wrong labels; None
            for `loader`. Give the training data without augmentation, where the loader has some.
        losses: as for `SelectiveLoader`.
        outputs: as for `SelectiveLoader`.
        examples: candidates of an epoch, if the loader does not tell.
        autocast: a type such as `torch.bfloat16` that training passes are computed in.
        pad: as for `SelectiveLoader`.
        whole: as for `SelectiveLoader`.
        device: where batches are moved to; by default where the model is.

    Raises:
        ConfigurationError: if the model cannot be copied or trained, an option cannot work, or
            the budget is too small for the shortest answer.
        LoaderError: if the loader cannot be wrapped, or yields nothing.
        LossError: if there is not one loss for each example.
    """
    time_left = Budget(check_number("budget", budget, "3600 is an hour", above=0))
    epochs = check_whole("epochs", epochs, optional=True)
    open_source(loader)  # refuses what is no loader
    with kept_streams(loader, find_device(model, device)), warnings.catch_warnings():
        # Warnings would be about the loaders that are timed, not about the user's.
        warnings.simplefilter("ignore", SelectionWarning)
        subject = take_subject(
            model,
            loader,
            loss_fn,
            optimizer=optimizer,
            rate=rate,
            losses=losses,
            outputs=outputs,
            examples=examples,
            autocast=autocast,
            pad=pad,
            whole=whole,
            device=device,
        )
        seconds = max(1e-3, min(A_MINUTE, LOOKING * time_left.left))
        traits = data_traits(loader if data is None else data, seconds=seconds)
        other_loss = is_no_cross_entropy(loss_fn) is not None
        return _conclude(Inquiry(subject, time_left), traits, epochs, other_loss)


def _conclude(inquiry: Inquiry, traits: DataTraits, epochs: int | None, other_loss: bool) -> Advice:
    """Measure, and sum up what was found as advice."""
    found = inquiry.run()
    subject, rounds = inquiry.subject, found.rounds
    scorers = {
        name: ScorerOutcome(
            summarise([_per_row(each, name) / _per_row(each, "forward") for each in rounds]),
            trial.agreement.correlation,
            trial.agreement.overlap,
        )
        for name, trial in found.trials.items()
        if trial.agreement is not None and f"scorer {name}" in rounds[0]
    }
    mixes = list_mixes(
        subject.rate,
        {name: found.cheap[name] for name in scorers},
        indexed=subject.knows_examples,
        redundancy=found.redundancy,
        other_loss=other_loss,
    )
    forecasts = foresee(mixes, found.ingredients, rounds, epochs, traits)
    plain = forecasts[BASELINE].phases
    total = max(sum(plain.values()), 1e-9)
    steps = [each[BASELINE] for each in rounds]
    remarks = {
        name: trial.remark for name, trial in found.trials.items() if trial.remark is not None
    }
    if found.diverged:
        remarks["losses and gradients"] = DIVERGED
    return Advice(
        config=_config(subject, found.clock),
        rounds=len(rounds),
        seconds=inquiry.budget.spent,
        shares={phase: seconds / total for phase, seconds in plain.items()},
        backward=summarise([s.phases["backward"] / max(s.phases["forward"], 1e-9) for s in steps]),
        scoring=summarise(
            [
                _per_row(each, "forward")
                * (each[BASELINE].steps * subject.batch_size)
                # Loading is no part of training on a candidate; 1e-9 avoids a division by 0.
                / max(each[BASELINE].seconds - each[BASELINE].phases.get("load", 0.0), 1e-9)
                for each in rounds
            ]
        ),
        scorers=scorers,
        traits=traits,
        redundancy=found.redundancy,
        forecasts=forecasts,
        recommendation=recommend(
            forecasts,
            mixes,
            found.redundancy,
            traits,
            epochs=epochs,
            diverged=found.diverged,
        ),
        left_out=tuple(inquiry.budget.left_out),
        remarks=remarks,
    )


def _per_row(found: Mapping[str, Any], scorer: str) -> float:
    spent = found[f"scorer {scorer}"]
    return max(spent.seconds, 1e-9) / spent.scored


def _config(subject: Subject, clock: str) -> dict[str, Any]:
    return {
        "model": type(subject.model).__name__,
        "parameters": sum(each.numel() for each in subject.model.parameters()),
        "optimizer": type(subject.optimizer).__name__,
        "batch_size": subject.batch_size,
        "window": subject.window,
        "rate": subject.rate,
        "examples": subject.examples,
        "device": "where batches are" if subject.device is None else str(subject.device),
        "workers": subject.source.loader.num_workers,
        "clock": clock,
    }
