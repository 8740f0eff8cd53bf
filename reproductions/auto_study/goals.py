"""What is asked of `auto` on a benchmark, and what was measured of it."""

import math
from collections.abc import Iterator

from reproductions.auto_study.budget_curves import BudgetCurves
from reproductions.auto_study.protocol import HARDEST, OURS, RANDOM, Benchmark
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.analysis.statistics import Estimate
from selective_backprop.lab.analysis.verdict import (
    Finding,
    above_zero,
    in_words,
    is_above,
    is_below,
)

RELATIVE, POINTS = 0.05, 0.3  # an error at most so much higher, in both together, is level
SPEEDUPS = ((1.1, 1.5), (1.2, 2.0), (1.4, 2.5))  # multiples of the error, and how much sooner


def goals(benchmark: Benchmark, curves: BudgetCurves) -> Iterator[Finding]:
    """Judge all that is asked for, of runs of `auto` and of traditional training at each budget."""
    short, long = curves.budgets[0], curves.budgets[-1]
    for budget in curves.budgets:
        best = curves.best_rival(budget)
        claim = f"at {budget:g} level with the best of the others, {best}"
        allowed = RELATIVE * curves.mean(best, budget).mean + POINTS
        yield _below(claim, curves.difference(OURS, budget, best), allowed)
    for other in (BASELINE, RANDOM):
        if other in curves.arms:
            claim = f"mean error over the logarithm of cost below {other}'s"
            yield _below(claim, curves.area_difference(OURS, other))
    if curves.errors.get((BASELINE, benchmark.more)):
        claim = f"at {short:g} as low as {BASELINE} at {benchmark.more:g}"
        yield _below(claim, curves.difference(OURS, short, BASELINE, benchmark.more))
    if not benchmark.noise:
        yield from _sooner(curves)
        return
    allowed = RELATIVE * curves.mean(BASELINE, long).mean + POINTS
    claim = f"with flipped labels no higher than {BASELINE} at {long:g}"
    yield _below(claim, curves.difference(OURS, long, BASELINE), allowed)
    if HARDEST in curves.arms:
        claim = f"where {HARDEST} ends higher than {BASELINE}"
        yield above_zero(claim, curves.difference(HARDEST, long, BASELINE), "points")


def _below(claim: str, found: Estimate, limit: float = 0.0) -> Finding:
    measured = in_words(found, "points")
    if limit:
        measured += f"; up to {limit:+.2f} is level"
    return Finding(claim, is_below(found, limit), measured)


def _sooner(curves: BudgetCurves) -> Iterator[Finding]:
    long = curves.budgets[-1]
    for factor, wanted in SPEEDUPS:
        target = factor * curves.mean(BASELINE, long).mean
        found, own = curves.full_over(OURS, target), curves.full_over(BASELINE, target)
        against = curves.sooner(OURS, target)
        measured = (
            f"at {_times(found)} of that cost; {BASELINE} itself at {_times(own)}"
            if math.isfinite(found.mean)
            else f"never; {BASELINE} itself at {_times(own)} of that cost"
        )
        if math.isfinite(against.mean):
            measured += f", of which that is {_times(against)}"
        claim = (
            f"{factor:g} times {BASELINE}'s error at {long:g} ({target:.2f} %) {wanted:g} × sooner"
        )
        yield Finding(claim, is_above(found, math.log(wanted)), measured)


def _times(found: Estimate) -> str:
    """Return one over a ratio whose logarithm was estimated: `1/1.80 (1/1.50 to 1/2.10)`."""
    if not math.isfinite(found.mean):
        return "none"
    text = f"1/{math.exp(found.mean):.2f}"
    if math.isfinite(found.half_width):
        text += f" (1/{math.exp(found.low):.2f} to 1/{math.exp(found.high):.2f})"
    return text
