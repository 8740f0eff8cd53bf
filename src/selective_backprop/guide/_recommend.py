"""The advice: select with a certain strategy, or do not select here, and why."""

from collections.abc import Mapping
from dataclasses import dataclass

from selective_backprop.guide._data_traits import DataTraits
from selective_backprop.guide._forecast import Forecast
from selective_backprop.guide._mixes import Mix
from selective_backprop.guide._redundancy import Redundancy

DEFAULT = "auto"
CLOSE = 0.8  # of the highest worth: forecasts are not sure enough to tell what is nearer apart
PAYS = 1.1  # times the training that it takes, at least: less is not worth the trouble


@dataclass(frozen=True)
class Recommendation:
    """What to do.

    Attributes:
        strategy: name of the strategy to take; None if the advice is not to select here.
        verdict: that in a sentence.
        reasons: as far as they are known, a sentence each: what the strategy is likely worth, what
            an epoch of it costs, what the data are like, and which on record are most like them.
        code: the lines to write: those of the strategy, or of a shorter training where the advice
            is not to select; empty if the model diverged or the budget was too small.
    """

    strategy: str | None
    verdict: str
    reasons: tuple[str, ...]
    code: tuple[str, ...] = ()


def choose(worths: Mapping[str, float]) -> str | None:
    """Return the strategy to recommend; None if none is worth `PAYS`.

    It is the one that is worth most, or the default where that is worth nearly as much.

    Args:
        worths: what each strategy is likely worth, by name.
    """
    return _best({name: worth for name, worth in worths.items() if worth >= PAYS})


def _best(worths: Mapping[str, float]) -> str | None:
    best = max(worths, key=worths.__getitem__, default=None)
    close = best is not None and worths.get(DEFAULT, 0.0) >= CLOSE * worths[best]
    return DEFAULT if close else best


def recommend(
    forecasts: Mapping[str, Forecast],
    mixes: Mapping[str, Mix],
    redundancy: Redundancy | None,
    traits: DataTraits,
    *,
    epochs: int | None = None,
    diverged: bool = False,
) -> Recommendation:
    """Return what to do: the strategy of the highest worth on data like these, if it pays.

    Args:
        forecasts: what an epoch of each strategy would cost, and what it is likely worth.
        mixes: how each strategy's epochs are made up.
        redundancy: where losses and gradients lie; None if that is not known.
        traits: what the data are made up of.
        epochs: of the whole training; None if that is unknown.
        diverged: whether the model diverged while it was measured.
    """
    if diverged:
        return Recommendation(
            None,
            "No verdict: the model diverged in a short warm-up.",
            (
                "Its losses, or their gradients, are not finite. Lower the learning rate, and ask "
                "again.",
            ),
        )
    if redundancy is None:
        return Recommendation(
            None,
            "No verdict: the budget left no time to look at the losses.",
            (f"How much {DEFAULT} would skip depends on them. Ask again with a larger budget.",),
        )
    found = {name: each.pays for name, each in forecasts.items() if each.pays is not None}
    times = {name: worth.times for name, worth in found.items()}
    chosen, best = choose(times), _best(times)
    if best is None:
        return Recommendation(
            None,
            "Do not select here: nobody knows what it would be worth.",
            ("Worth: nothing on record could be used here on data like these.", _look_of(traits)),
            _shorter(epochs),
        )
    worth, cost = found[best], forecasts[best]
    reasons = (
        f"Worth: {worth.times:.2f} times traditional training in equal seconds "
        f"({worth.low:.2f} to {worth.high:.2f}).",
        f"Cost: an epoch trains on {cost.share:.0%} of the examples and takes "
        f"{cost.relative.median:.0%} of the time.",
        _look_of(traits),
        f"Nearest data on record: {worth.like[0]}.",
    )
    if chosen is None:
        verdict = f"Do not select here: not even {best} is likely to pay."
        return Recommendation(None, verdict, reasons, _shorter(epochs))
    kinds = [
        kind
        for kind, holds in (
            ("repetitive", traits.repetitive),
            ("skewed", traits.skewed),
            ("mislabelled", traits.mislabelled),
        )
        if holds
    ]
    where = f"{', '.join(kinds)} data" if kinds else "data like these"
    verdict = f"Use {chosen}: it is likely to pay on {where}."
    return Recommendation(chosen, verdict, reasons, _code(mixes[chosen], epochs))


def _look_of(traits: DataTraits) -> str:
    """Say how repetitive, skewed and mislabelled the data are."""
    said = []
    repeated = traits.copies if traits.near_copies is None else traits.near_copies
    if repeated is not None:
        said.append(f"{repeated:.0%} repeated")
    if traits.classes is not None:
        skew = f", {traits.effective_classes:.1f} in effect" if traits.skewed else ""
        said.append(f"{traits.classes} classes{skew}")
    if traits.wrong_labels is not None:
        said.append(f"{traits.wrong_labels:.0%} of the labels look wrong")
    elif traits.wrong_labels_at_most is not None:
        said.append(f"at most {traits.wrong_labels_at_most:.0%} of the labels are wrong")
    return f"Data: {'; '.join(said) or 'their inputs and targets tell nothing'}."


def _code(mix: Mix, epochs: int | None) -> tuple[str, ...]:
    length = f", epochs={epochs or 'epochs'}" if mix.strategy.schedule.uses_fractions else ""
    lines = [
        "import selective_backprop as sb",
        f"loader = sb.SelectiveLoader(train_loader, model, loss_fn, {mix.code}{length})",
    ]
    if mix.records or mix.weighs:
        lines.append("loss_fn = loader.loss_fn")
    return (*lines, "for inputs, targets in loader:")


def _shorter(epochs: int | None) -> tuple[str, ...]:
    """Return the lines of the rival that every strategy has to beat: a shorter training."""
    return (
        "epochs = epochs // 2  # to save time, or as few as you can"
        if epochs is None
        else f"epochs = {max(1, epochs // 2)}  # instead of {epochs}, to save time",
        "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)",
        "# and scheduler.step() after each epoch",
    )
