"""Whether what was measured points where a paper says: from intervals over seeds, nothing else."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    Axis,
    Estimate,
    common_span,
    estimate,
    final_error,
    mean_error,
    time_to,
)
from selective_backprop.lab.analysis.tables import with_interval
from selective_backprop.lab.records.schema import Run

SAME = 0.1  # a final error at most this much higher, as a share, is called comparable


class Verdict(StrEnum):
    """What the records say of a claim."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNCLEAR = "cannot say"


@dataclass(frozen=True)
class Finding:
    """A claim, and what was measured of it.

    Attributes:
        claim: in the direction that the source gives it.
        verdict: whether the 95 % interval over seeds lies on the claimed side.
        words: the numbers.
    """

    claim: str
    verdict: Verdict
    words: str


def below_zero(claim: str, difference: Estimate, unit: str) -> Finding:
    """Judge the claim that a difference is negative.

    Args:
        claim: in words.
        difference: over seeds.
        unit: of the difference.
    """
    return Finding(claim, _side(-difference.mean, difference), _words(difference, unit))


def above_zero(claim: str, difference: Estimate, unit: str) -> Finding:
    """Judge the claim that a difference is positive."""
    return Finding(claim, _side(difference.mean, difference), _words(difference, unit))


def learns_sooner(claim: str, arm: Arm, other: Arm, axis: Axis) -> Finding:
    """Judge the claim that an arm's error lies below another's along an axis.

    What is compared is the area under the curves, over the part of the axis that both cover.
    """

    def difference(one: Run, two: Run) -> float:
        start, end = common_span([one, two], axis)
        return mean_error(one, start, end, axis=axis) - mean_error(two, start, end, axis=axis)

    found = paired(arm, other, difference)
    return below_zero(claim, found, f"points of mean error over the same {AXIS_WORDS[axis]}")


def ends_higher(claim: str, arm: Arm, other: Arm) -> Finding:
    """Judge the claim that an arm ends at a higher error than another."""
    return above_zero(claim, paired(arm, other, _final_difference), "points of final error")


def ends_comparably(claim: str, arm: Arm, other: Arm) -> Finding:
    """Judge the claim that an arm ends at about another's error: at most a tenth above it."""
    found = paired(arm, other, _final_difference)
    allowed = SAME * estimate([final_error(run) for run in other.runs]).mean
    shifted = Estimate(found.mean - allowed, found.half_width, found.seeds)
    words = f"{_words(found, 'points of final error')}; comparable is up to {allowed:+.2f}"
    return Finding(claim, _side(-shifted.mean, shifted), words)


def reaches_sooner(claim: str, arm: Arm, other: Arm, target: float, axis: Axis) -> Finding:
    """Judge the claim that an arm reaches an error before another does.

    Args:
        claim: in words.
        arm: what is claimed to be faster.
        other: what it is held against.
        target: error, in percent.
        axis: what time is measured in.
    """
    theirs = {run.header.seed: time_to(run, target, axis) for run in other.runs}
    times = {run.header.seed: time_to(run, target, axis) for run in arm.runs}
    both = [(times[seed], theirs[seed]) for seed in times if theirs.get(seed) is not None]
    never = sum(mine is None for mine, _ in both)
    if never:
        words = f"never reached {target:.2f} % with {never} of {len(both)} seeds"
        all_of_several = never == len(both) > 1
        return Finding(claim, Verdict.DISAGREES if all_of_several else Verdict.UNCLEAR, words)
    ratios = [math.log(reference / mine) for mine, reference in both if mine and reference]
    found = estimate(ratios)
    middle, low, high = (math.exp(x) for x in (found.mean, found.low, found.high))
    words = f"{middle:.2f}× as fast in {AXIS_WORDS[axis]} to {target:.2f} %"
    if not math.isnan(found.half_width):
        words += f" ({low:.2f} to {high:.2f})"
    return Finding(claim, _side(found.mean, found), words if ratios else "nothing to measure")


def paired(arm: Arm, other: Arm, difference: Callable[[Run, Run], float]) -> Estimate:
    """Return the mean over shared seeds of a difference between two arms' runs."""
    theirs = {run.header.seed: run for run in other.runs}
    values = [
        difference(run, theirs[run.header.seed]) for run in arm.runs if run.header.seed in theirs
    ]
    return estimate([value for value in values if math.isfinite(value)])


def tally(findings: tuple[Finding, ...]) -> str:
    """Return how many findings there are of each verdict: `agrees 2, cannot say 1`."""
    counted = [(verdict, sum(f.verdict is verdict for f in findings)) for verdict in Verdict]
    return ", ".join(f"{verdict} {count}" for verdict, count in counted if count) or "no claim"


def _final_difference(one: Run, two: Run) -> float:
    return final_error(one) - final_error(two)


def _side(claimed: float, found: Estimate) -> Verdict:
    """Return the verdict on a quantity that is claimed to be positive."""
    if not abs(found.mean) > found.half_width:  # also where the spread is unknown
        return Verdict.UNCLEAR
    return Verdict.AGREES if claimed > 0 else Verdict.DISAGREES


def _words(found: Estimate, unit: str) -> str:
    if not found.seeds:
        return "no seed with both"
    seeds = f"{found.seeds} seed{'' if found.seeds == 1 else 's'}"
    return f"{with_interval(found, signed=True)} {unit} ({seeds})"
