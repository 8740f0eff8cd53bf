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
SHORTER = (
    "Train for fewer epochs instead, with the learning rate decayed over them: that is what every "
    "strategy has to beat."
)


@dataclass(frozen=True)
class Recommendation:
    """What to do.

    Attributes:
        strategy: name of the strategy to try; None if the advice is not to select here.
        reasons: why, the most important first.
        code: the lines to write; empty if the loop stays as it is.
    """

    strategy: str | None
    reasons: tuple[str, ...]
    code: tuple[str, ...] = ()


def recommend(
    forecasts: Mapping[str, Forecast],
    mixes: Mapping[str, Mix],
    redundancy: Redundancy | None,
    traits: DataTraits,
    *,
    diverged: bool = False,
) -> Recommendation:
    """Return what to do: the strategy of the highest worth on data like these, if it pays.

    The default is taken wherever no other is clearly worth more.

    Args:
        forecasts: what an epoch of each strategy would cost, and what it is likely worth.
        mixes: how each strategy's epochs are made up.
        redundancy: where losses and gradients lie; None if that is not known.
        traits: what the data are made up of.
        diverged: whether the model diverged while it was measured.
    """
    if diverged:
        return Recommendation(
            None,
            (
                "The model diverged in a short warm-up: its losses, or their gradients, are not "
                "finite. Lower the learning rate, and ask again.",
            ),
        )
    told = traits.consequences
    pays = {name: each.pays for name, each in forecasts.items() if each.pays is not None}
    if not pays:
        why = (
            "No strategy that could be used here is on record for data like these, so nobody knows "
            "what it would be worth."
        )
        return Recommendation(None, (why, SHORTER, *told))
    best = max(pays, key=lambda name: pays[name])
    if pays.get(DEFAULT, 0.0) >= CLOSE * pays[best]:
        best = DEFAULT
    found = forecasts[best]
    assert found.worth is not None
    on_record = (
        f"On data most like these ({'; '.join(found.worth.like)}), {best} equalled "
        f"{found.worth.times:.2f} times the passes of traditional training "
        f"({found.worth.low:.2f} to {found.worth.high:.2f})."
    )
    here = (
        f"An epoch of it takes {found.relative.median:.0%} of a traditional one here, and trains "
        f"on {found.share:.0%} of the examples: at equal seconds that is {pays[best]:.2f} times."
    )
    if pays[best] < PAYS:
        return Recommendation(None, (on_record, here, SHORTER, *told))
    looked = () if redundancy is None else (_where_losses_lie(redundancy),)
    return Recommendation(best, (on_record, here, *looked, *told), _code(mixes[best]))


def _where_losses_lie(redundancy: Redundancy) -> str:
    return (
        f"After a short warm-up the {redundancy.rate:.0%} of the examples with the highest losses "
        f"supply {redundancy.gradient_share:.0%} of the gradient of all; its cosine is "
        f"{redundancy.cosine:.2f}, a random selection's {redundancy.random_cosine:.2f}."
    )


def _code(mix: Mix) -> tuple[str, ...]:
    lines = [
        "import selective_backprop as sb",
        f"loader = sb.SelectiveLoader(train_loader, model, loss_fn, {mix.code})",
    ]
    if mix.records or mix.weighs:
        lines.append("loss_fn = loader.loss_fn")
    return (*lines, "for inputs, targets in loader:")
