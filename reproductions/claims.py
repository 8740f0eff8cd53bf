"""What papers claim of strategies, judged by records: who learns sooner, and who ends where."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean

from reproductions.figures import Entry, Judged, PanelData
from selective_backprop_lab.analysis.grouping import RunGroup
from selective_backprop_lab.analysis.statistics import (
    AXIS_WORDS,
    Axis,
    Estimate,
    common_span,
    estimate,
    final_error,
    mean_error,
    time_to,
)
from selective_backprop_lab.analysis.tables import Table, with_interval
from selective_backprop_lab.analysis.verdict import (
    Finding,
    Verdict,
    above_zero,
    below_zero,
    in_words,
    is_above,
    is_below,
)
from selective_backprop_lab.records.schema import Point, Run

Measure = Callable[[Run], float]
Comparison = Callable[[str, RunGroup, RunGroup], Finding]
"""Judges a claim of one arm against another."""
Cell = Callable[[Entry, RunGroup], str]
SAME = 0.1  # a final error at most this much higher, as a share, is called comparable


def compared(
    shown: PanelData, quote: str, claim: str, keys: tuple[str, str], judge: Comparison
) -> Iterator[Judged]:
    """Judge what a quote claims of one arm against another, where both have runs."""
    arm, other = map(shown.find, keys)
    if arm is not None and other is not None:
        claim = claim.format(arm.label, other.label)
        yield quote, judge(f"{shown.title}: {claim}", arm, other)


def sooner(
    shown: PanelData, quote: str, claim: str, keys: tuple[str, str], axis: Axis
) -> Iterator[Judged]:
    """Judge the claim that one arm learns sooner along an axis than another."""
    yield from compared(shown, quote, claim, keys, partial(learns_sooner, axis=axis))


def by_entry(
    shown: PanelData, columns: Mapping[str, Cell], title: str = "", head: str = "strategy"
) -> Table:
    """Return a table with a row for each entry that has runs."""
    rows = [
        (entry.label, *(cell(entry, arm) for cell in columns.values()))
        for entry, arm in shown.pairs
    ]
    return Table((head, *columns), rows, title or shown.title)


def each_mean(value: Measure) -> Cell:
    """Return the cell of a column that holds the mean over seeds of what is measured of a run."""
    return lambda entry, arm: with_interval(mean_of(arm, value))


def learns_sooner(claim: str, arm: RunGroup, other: RunGroup, axis: Axis) -> Finding:
    """Judge the claim that an arm's error lies below another's along an axis.

    What is compared is the area under the curves, over the part of the axis that both cover.
    """
    unit = f"points of mean error over the same {AXIS_WORDS[axis]}"
    return below_zero(claim, earlier(arm, other, axis), unit)


def earlier(arm: RunGroup, other: RunGroup, axis: Axis) -> Estimate:
    """Return how far an arm's error lies above another's, in the mean over what both cover."""

    def difference(one: Run, two: Run) -> float:
        start, end = common_span([one, two], axis)
        return mean_error(one, start, end, axis=axis) - mean_error(two, start, end, axis=axis)

    return paired(arm, other, difference)


def above(claim: str, found: Estimate, limit: float, unit: str) -> Finding:
    """Judge the claim that a quantity is above a limit."""
    return Finding(claim, is_above(found, limit), f"{with_interval(found)} {unit}")


def below(claim: str, found: Estimate, limit: float, unit: str) -> Finding:
    """Judge the claim that a quantity is below a limit."""
    return Finding(claim, is_below(found, limit), f"{with_interval(found)} {unit}")


def ends_higher(claim: str, arm: RunGroup, other: RunGroup) -> Finding:
    """Judge the claim that an arm ends at a higher error than another."""
    return above_zero(claim, final_difference(arm, other), "points of final error")


def ends_comparably(claim: str, arm: RunGroup, other: RunGroup) -> Finding:
    """Judge the claim that an arm ends at about another's error: at most a tenth above it."""
    found = final_difference(arm, other)
    allowed = SAME * final(other).mean
    words = f"{in_words(found, 'points of final error')}; comparable is up to {allowed:+.2f}"
    return Finding(claim, is_below(found, allowed), words)


def reaches_sooner(
    claim: str, arm: RunGroup, other: RunGroup, target: float, axis: Axis
) -> Finding:
    """Judge the claim that an arm reaches an error, in percent, before another does."""
    theirs = {run.header.seed: time_to(run, target, axis) for run in other.runs}
    times = {run.header.seed: time_to(run, target, axis) for run in arm.runs}
    both = [(times[seed], theirs[seed]) for seed in times if theirs.get(seed) is not None]
    never = sum(mine is None for mine, _ in both)
    if never:
        words = f"never reached {target:.2f} % with {never} of {len(both)} seeds"
        all_of_several = never == len(both) > 1
        return Finding(claim, Verdict.FAILS if all_of_several else Verdict.OPEN, words)
    ratios = [math.log(reference / mine) for mine, reference in both if mine and reference]
    return _as_fast(claim, ratios, f"in {AXIS_WORDS[axis]} to {target:.2f} %")


def faster(
    claim: str, arm: RunGroup, other: RunGroup, targets: Sequence[float], axis: Axis
) -> Finding:
    """Judge the claim that an arm reaches errors sooner, in the mean over those that both reach."""
    theirs = {run.header.seed: run for run in other.runs}
    ratios = []
    for run in arm.runs:
        if run.header.seed not in theirs:
            continue
        times = (
            (time_to(run, target, axis), time_to(theirs[run.header.seed], target, axis))
            for target in targets
        )
        both = [math.log(reference / mine) for mine, reference in times if mine and reference]
        if both:
            ratios.append(fmean(both))
    return _as_fast(claim, ratios, f"in {AXIS_WORDS[axis]}, mean over targets that both reach")


def _as_fast(claim: str, logarithms: Sequence[float], where: str) -> Finding:
    found = estimate(logarithms)
    if not logarithms:
        return Finding(claim, Verdict.OPEN, "nothing to measure")
    middle, low, high = (math.exp(x) for x in (found.mean, found.low, found.high))
    words = f"{middle:.2f}× as fast {where}"
    if not math.isnan(found.half_width):
        words += f" ({low:.2f} to {high:.2f})"
    return Finding(claim, is_above(found), words)


def paired(arm: RunGroup, other: RunGroup, difference: Callable[[Run, Run], float]) -> Estimate:
    """Return the mean over shared seeds of a difference between two arms' runs."""
    theirs = {run.header.seed: run for run in other.runs}
    values = [
        difference(run, theirs[run.header.seed]) for run in arm.runs if run.header.seed in theirs
    ]
    return estimate([value for value in values if math.isfinite(value)])


def mean_of(arm: RunGroup, value: Measure) -> Estimate:
    """Return the mean over seeds of what is measured of a run."""
    return estimate([value(run) for run in arm.runs])


def final(arm: RunGroup) -> Estimate:
    """Return the final error."""
    return mean_of(arm, final_error)


def final_difference(arm: RunGroup, other: RunGroup) -> Estimate:
    """Return how much higher an arm ends than another, seed by seed."""
    return paired(arm, other, lambda one, two: final_error(one) - final_error(two))


def clock(runs: Sequence[Run]) -> Axis:
    """Return the axis that stands for the papers' seconds.

    Runs on a CPU share its cores with whatever else the machine does, and wall seconds tell that
    too; a process's own CPU time hardly does. Runs on a GPU are timed by the wall.
    """
    on_cpu = any(run.header.device == "cpu" for run in runs)
    return "cpu_seconds" if on_cpu else "seconds"


def timed(axes: Sequence[Axis], runs: Sequence[Run]) -> tuple[Axis, ...]:
    """Return axes with the runs' own clock in the place of wall seconds."""
    return tuple(clock(runs) if axis == "seconds" else axis for axis in axes)


def seconds_of_phases(run: Run, point: Point) -> dict[str, float]:
    """Return the seconds of each phase up to an evaluation, on the run's clock, and of overhead.

    Phases are metered in wall seconds; CPU seconds are split in their proportion.
    """
    share = 1.0
    if clock([run]) == "cpu_seconds" and point.seconds:
        share = point.cpu_seconds / point.seconds
    spent = {**point.phases, "overhead": point.overhead or 0.0}
    return {phase: share * seconds for phase, seconds in spent.items()}
