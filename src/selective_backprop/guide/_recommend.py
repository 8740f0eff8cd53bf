"""The advice: select with a certain strategy, or do not select here, and why."""

from collections.abc import Mapping
from dataclasses import dataclass

from selective_backprop.guide._data_traits import DataTraits
from selective_backprop.guide._forecast import Forecast
from selective_backprop.guide._known import EVIDENCE
from selective_backprop.guide._mixes import BASELINE, Mix
from selective_backprop.guide._redundancy import Redundancy

WORTH = 0.9  # of a traditional epoch: an epoch that takes more is not worth the trouble
CONCENTRATED = 0.5  # least share of the gradient or the loss that the selection must hold
FAITHFUL = 0.8  # least share of the highest exact scores that cheap ones must find
ASIDE = 0.05  # cosines of a few batches differ by up to this much by chance
LABELS = "auto"  # what is advised where labels are wrong
NOT_ADVISED = {BASELINE, "random-scored", "random-backprop"}


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
    overlaps: Mapping[str, float],
    redundancy: Redundancy | None,
    traits: DataTraits,
    *,
    diverged: bool = False,
) -> Recommendation:
    """Return what to do.

    Args:
        forecasts: what an epoch of each strategy would cost, including traditional training.
        mixes: how each strategy's epochs are made up.
        overlaps: share of the highest exact scores that each cheap scorer finds.
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
    if traits.mislabelled:
        known = LABELS in mixes
        return Recommendation(
            LABELS if known else None, told, _code(mixes[LABELS]) if known else ()
        )
    able = [
        name
        for name, mix in mixes.items()
        if name not in NOT_ADVISED
        and not mix.varies
        and (mix.scorer is None or overlaps.get(mix.scorer, 0.0) >= FAITHFUL)
    ]
    best = min(able, key=lambda name: forecasts[name].relative.median)
    saving = forecasts[best].relative.median
    if saving > WORTH:
        return Recommendation(
            None,
            (
                f"The cheapest that selects by loss, {best}, would still take {saving:.0%} of a "
                "traditional epoch.",
                *_short(forecasts),
                *told,
                EVIDENCE,
            ),
        )
    if redundancy is None:
        return Recommendation(
            None,
            ("Whether losses single out what still teaches was not looked at.", *told, EVIDENCE),
        )
    against = tuple(_against(redundancy))
    if against:
        return Recommendation(None, (*against, *_short(forecasts), *told, EVIDENCE))
    return Recommendation(
        best,
        (
            f"An epoch of {best} takes {saving:.0%} of a traditional one.",
            f"The {redundancy.rate:.0%} of the examples with the highest losses supply "
            f"{redundancy.gradient_share:.0%} of the gradient of all; its cosine is "
            f"{redundancy.cosine:.2f}, a random selection's {redundancy.random_cosine:.2f}.",
            *told,
            f"{EVIDENCE} Compare with fewer epochs of traditional training, and with "
            "random_backprop at the same rate.",
            "Not if labels are wrong: what is mislabelled keeps a high loss. auto() leaves it out.",
        ),
        _code(mixes[best]),
    )


def _against(redundancy: Redundancy) -> list[str]:
    """Return the reasons against selecting by loss."""
    found = []
    share = f"{redundancy.rate:.0%}"
    if redundancy.gradient_share < max(CONCENTRATED, redundancy.rate):
        found.append(
            f"The {share} of the examples with the highest losses supply only "
            f"{redundancy.gradient_share:.0%} of the gradient of all: the others still teach, "
            "because the model is young or the data hard throughout."
        )
    if redundancy.loss_share < CONCENTRATED and redundancy.rate < CONCENTRATED:
        found.append(
            f"They hold only {redundancy.loss_share:.0%} of the loss, {share} being what any "
            "would hold."
        )
    if redundancy.cosine < redundancy.random_cosine - ASIDE:
        found.append(
            f"Their gradient points elsewhere: its cosine with that of all is "
            f"{redundancy.cosine:.2f}, a random selection's {redundancy.random_cosine:.2f}."
        )
    return found


def _short(forecasts: Mapping[str, Forecast]) -> list[str]:
    """Return the advice to train for fewer epochs, and what random skipping would cost."""
    if "random-backprop" not in forecasts:
        return ["Train for fewer epochs instead, with the learning rate decayed over them."]
    cost = forecasts["random-backprop"].relative.median
    return [
        "Train for fewer epochs instead, with the learning rate decayed over them; skipping at "
        f"random, at {cost:.0%} of an epoch, is the same by other means."
    ]


def _code(mix: Mix) -> tuple[str, ...]:
    lines = [
        "import selective_backprop as sb",
        f"loader = sb.SelectiveLoader(train_loader, model, loss_fn, {mix.code})",
    ]
    if mix.records or mix.weighs:
        lines.append("loss_fn = loader.loss_fn")
    return (*lines, "for inputs, targets in loader:")
