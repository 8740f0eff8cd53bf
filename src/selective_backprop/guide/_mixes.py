"""The timed loops that make up an epoch of each strategy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from selective_backprop.guide._redundancy import Redundancy
from selective_backprop.guide._scorers import CheapScorer
from selective_backprop.strategies import (
    Strategy,
    auto,
    easy_skip,
    infobatch,
    predicted_sb,
    random_backprop,
    random_scored,
    recorded_sb,
    selective_backprop,
    stale_sb,
    traditional,
)

BASELINE = "traditional"
STALE = 3  # epochs that a score is used for
FLOOR = 0.25  # easy_skip's default
AUTO_FLOOR = 0.1  # auto's
PRUNED = 0.5  # share that infobatch prunes below the mean


@dataclass(frozen=True)
class Mix:
    """How an epoch of a strategy is made up of timed loops.

    Attributes:
        strategy: the strategy.
        code: how a user writes it.
        parts: by loop, how many of its windows an epoch has per window of candidates.
            `traditional` trains on every batch, `random` on a share drawn before loading,
            `scored` on rows selected after scoring, `recalled` on rows selected before loading
            by remembered losses; a scorer that overlaps has a loop of its own name.
        scorer: the cheap scorer in place of the exact one; None for the exact one.
        varies: whether the parts depend on the losses.
    """

    strategy: Strategy
    code: str
    parts: Mapping[str, float]
    scorer: str | None = None
    varies: bool = False

    @property
    def scored(self) -> float:
        """The share of an epoch's candidates that passes score."""
        others = (BASELINE, "random", "recalled")
        return sum(share for loop, share in self.parts.items() if loop not in others)

    @property
    def records(self) -> bool:
        """Whether the loop must hand over its losses."""
        needs = self.strategy.needs
        return needs is not None and needs.recordings

    @property
    def weighs(self) -> bool:
        """Whether the loop must apply the rows' weights."""
        return self.strategy.selector.terms.reweights


def list_mixes(
    rate: float,
    scorers: Mapping[str, CheapScorer],
    *,
    indexed: bool,
    redundancy: Redundancy | None,
    other_loss: bool = False,
) -> dict[str, Mix]:
    """Return how each strategy's epochs are made up.

    Args:
        rate: share of the candidates that selection keeps.
        scorers: the cheap scorers that were timed.
        indexed: whether examples are known by index, as selection before loading needs.
        redundancy: tells the share kept by strategies whose share depends on the losses; None
            leaves them out.
        other_loss: whether the loss is known to be no cross-entropy, which some strategies need.
    """
    named = dict(_everywhere(rate, scorers))
    if indexed:
        named |= dict(_by_index(rate, scorers))
        if redundancy is not None:
            named |= dict(_by_losses(rate, redundancy))
    return {
        name: mix
        for name, mix in named.items()
        if not (other_loss and mix.strategy.selector.terms.confidence)
    }


def _everywhere(rate: float, scorers: Mapping[str, CheapScorer]) -> Iterator[tuple[str, Mix]]:
    kept = written(rate)
    yield BASELINE, Mix(traditional(), "sb.traditional()", {BASELINE: 1.0})
    scored = {"scored": 1.0}
    yield "random-scored", Mix(random_scored(rate), f"sb.random_scored({kept})", scored)
    code = f"sb.selective_backprop({kept})"
    yield "selective-backprop", Mix(selective_backprop(rate), code, scored)
    for name, each in scorers.items():
        strategy = selective_backprop(rate, scorer=each.scorer)
        code = f"sb.selective_backprop({kept}, scorer={each.code})"
        if each.overlaps:
            yield f"{name}-sb", Mix(strategy, code, {name: 1.0})
        else:
            yield f"{name}-sb", Mix(strategy, code, scored, name)


def _by_index(rate: float, scorers: Mapping[str, CheapScorer]) -> Iterator[tuple[str, Mix]]:
    kept = written(rate)
    cycle = {"scored": 1 / STALE, "recalled": 1 - 1 / STALE}
    yield (
        "random-backprop",
        Mix(random_backprop(rate), f"sb.random_backprop({kept})", {"random": 1.0}),
    )
    code = f"sb.stale_sb({kept}, epochs={STALE})"
    yield "stale-sb", Mix(stale_sb(rate, epochs=STALE), code, cycle)
    for name, each in scorers.items():
        if each.overlaps:
            continue
        strategy = stale_sb(rate, epochs=STALE, scorer=each.scorer)
        code = f"sb.stale_sb({kept}, epochs={STALE}, scorer={each.code})"
        yield f"{name}-stale-sb", Mix(strategy, code, cycle, name)
    code = f"sb.predicted_sb({kept}, epochs={STALE})"
    yield "predicted-sb", Mix(predicted_sb(rate, epochs=STALE), code, cycle)
    yield "recorded-sb", Mix(recorded_sb(rate), f"sb.recorded_sb({kept})", {"recalled": 1.0})


def _by_losses(rate: float, redundancy: Redundancy) -> Iterator[tuple[str, Mix]]:
    kept = redundancy.kept_by_confidence(FLOOR)
    parts = {"recalled": kept / rate}
    yield "easy-skip", Mix(easy_skip(FLOOR), "sb.easy_skip()", parts, varies=True)
    kept = 1 - PRUNED * redundancy.below_mean()
    parts = {"recalled": kept / rate}
    yield "infobatch", Mix(infobatch(PRUNED), "sb.infobatch()", parts, varies=True)
    parts = {"recalled": redundancy.kept_by_confidence(AUTO_FLOOR) / rate}
    yield "auto", Mix(auto(AUTO_FLOOR), "sb.auto()", parts, varies=True)


def written(rate: float) -> str:
    """Return a rate as a user would write it in code."""
    share = Fraction(rate).limit_denominator(12)
    if abs(share - Fraction(rate)) > 1e-3 * rate:
        return f"rate={rate:.4g}"
    return f"rate={share.numerator} / {share.denominator}" if share < 1 else "rate=1"
