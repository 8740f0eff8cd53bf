"""Whether `auto` does what was asked of it: each goal, what was measured, and how far it is."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from reproductions.auto_study.fronts import Front
from reproductions.auto_study.protocol import HARDEST, OURS, RANDOM, Ground
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.analysis.statistics import Estimate
from selective_backprop.lab.analysis.tables import with_interval

RELATIVE, POINTS = 0.05, 0.3  # an error at most so much higher, in both together, is level
SPEEDUPS = ((1.1, 1.5), (1.2, 2.0), (1.4, 2.5))  # multiples of the error, and how much sooner


class Outcome(StrEnum):
    """What the interval over seeds says of a goal."""

    REACHED = "reached"
    MISSED = "missed"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True)
class Goal:
    """Something asked of `auto` on one ground.

    Attributes:
        words: what.
        outcome: whether the whole 95 % interval over seeds lies on the side that was asked for.
        measured: the numbers.
    """

    words: str
    outcome: Outcome
    measured: str


def goals(ground: Ground, front: Front) -> Iterator[Goal]:
    """Judge all that is asked for on a ground.

    Args:
        ground: what was run.
        front: with runs of `auto` and of traditional training at each budget.
    """
    short, long = front.budgets[0], front.budgets[-1]
    for budget in front.budgets:
        yield _level(front, budget)
    for other in (BASELINE, RANDOM):
        if other in front.arms:
            difference = front.area_difference(OURS, other)
            words = f"mean error over the logarithm of cost below {other}'s"
            yield _below(words, difference, 0.0)
    if front.errors.get((BASELINE, ground.more)):
        difference = front.difference(OURS, short, BASELINE, ground.more)
        words = f"at {short:g} as low as {BASELINE} at {ground.more:g}"
        yield _below(words, difference, 0.0)
    if not ground.noise:
        yield from _sooner(front)
        return
    base = front.mean(BASELINE, long).mean
    words = f"with flipped labels no higher than {BASELINE} at {long:g}"
    yield _below(words, front.difference(OURS, long, BASELINE), RELATIVE * base + POINTS)
    if HARDEST in front.arms:
        words = f"where {HARDEST} ends higher than {BASELINE}"
        yield _above(words, front.difference(HARDEST, long, BASELINE), 0.0, "points")


def _level(front: Front, budget: float) -> Goal:
    best = front.best_rival(budget)
    allowed = RELATIVE * front.mean(best, budget).mean + POINTS
    words = f"at {budget:g} level with the best of the others, {best}"
    return _below(words, front.difference(OURS, budget, best), allowed)


def _sooner(front: Front) -> Iterator[Goal]:
    long = front.budgets[-1]
    final = front.mean(BASELINE, long).mean
    for factor, wanted in SPEEDUPS:
        target = factor * final
        found, own = front.full_over(OURS, target), front.full_over(BASELINE, target)
        against = front.sooner(OURS, target)
        measured = (
            f"at {_times(found)} of that cost; {BASELINE} itself at {_times(own)}"
            if math.isfinite(found.mean)
            else f"never; {BASELINE} itself at {_times(own)} of that cost"
        )
        if math.isfinite(against.mean):
            measured += f", of which that is {_times(against)}"
        words = (
            f"{factor:g} times {BASELINE}'s error at {long:g} ({target:.2f} %) {wanted:g} × sooner"
        )
        yield Goal(words, _side(found, math.log(wanted)), measured)


def _below(words: str, found: Estimate, limit: float) -> Goal:
    measured = f"{with_interval(found, signed=True)} points ({_seeds(found)})"
    if limit:
        measured += f"; up to {limit:+.2f} is level"
    return Goal(
        words, _side(Estimate(-found.mean, found.half_width, found.seeds), -limit), measured
    )


def _above(words: str, found: Estimate, limit: float, unit: str) -> Goal:
    measured = f"{with_interval(found, signed=True)} {unit} ({_seeds(found)})"
    return Goal(words, _side(found, limit), measured)


def _side(found: Estimate, limit: float) -> Outcome:
    """Judge whether something is above a limit."""
    spread_known = math.isfinite(found.half_width) or math.isinf(found.mean)
    if found.seeds < 2 or math.isnan(found.mean) or not spread_known:
        return Outcome.UNRESOLVED
    if math.isinf(found.mean):
        return Outcome.MISSED if found.mean < 0 else Outcome.REACHED
    if found.low >= limit:
        return Outcome.REACHED
    return Outcome.MISSED if found.high < limit else Outcome.UNRESOLVED


def _times(found: Estimate) -> str:
    """Return one over a ratio whose logarithm was estimated: `1/1.80 (1/1.50 to 1/2.10)`."""
    if not math.isfinite(found.mean):
        return "none"
    text = f"1/{math.exp(found.mean):.2f}"
    if math.isfinite(found.half_width):
        text += f" (1/{math.exp(found.low):.2f} to 1/{math.exp(found.high):.2f})"
    return text


def _seeds(found: Estimate) -> str:
    return f"{found.seeds} seed{'' if found.seeds == 1 else 's'}"
