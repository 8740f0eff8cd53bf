"""What the poster claims of its methods, judged by records of runs."""

from collections.abc import Iterator

from reproductions import claims, figures
from reproductions.diet_sb.methods import BASELINE, NAMES, PRUNED_FIRST, key_of, percents
from selective_backprop_lab.analysis.grouping import RunGroup
from selective_backprop_lab.analysis.statistics import Estimate, at, final_error
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.analysis.verdict import (
    Finding,
    Verdict,
    above_zero,
    in_words,
    is_above,
    is_below,
)
from selective_backprop_lab.records.schema import Run

MARGIN = 2.0  # points of accuracy within which the poster's "on par" is read
KEPT_UP = 0.75  # the share that Random-Backprop is said to drop without impact
_AS_ACCURATE, _LESS_TIME = "is as accurate as Baseline", "takes less time per epoch than Baseline"
_POINTS = "points of accuracy"
Judged = Iterator[figures.Judged]


def per_epoch(run: Run, epochs: int) -> float:
    """Return the seconds of an epoch on the run's clock, its warm-up and preparation left out.

    An epoch is one pass over what pruning left. Of a run that was not evaluated between its first
    epoch, which is the warm-up, and its end, it is the mean of all epochs.

    Args:
        run: a finished run.
        epochs: its length.
    """
    axis, last = claims.clock([run]), run.points[-1]
    first = next((point for point in run.points if point.progress * epochs >= 0.99), last)
    if first is last:
        return (at(last, axis) - preparing(run)) / epochs
    return (at(last, axis) - at(first, axis)) / (epochs * (last.progress - first.progress))


def preparing(run: Run) -> float:
    """Return the seconds before training: those of EL2N's models, on the run's clock."""
    return claims.seconds_of_phases(run, run.points[-1]).get("prepare", 0.0)


def accuracy(arm: RunGroup) -> Estimate:
    """Return the accuracy at the end, in per cent."""
    return claims.mean_of(arm, lambda run: 100 - final_error(run))


def ratio(arm: RunGroup, base: RunGroup, epochs: int) -> Estimate:
    """Return the time per epoch as a share of another's, seed by seed."""
    return claims.paired(
        arm, base, lambda one, two: per_epoch(one, epochs) / per_epoch(two, epochs)
    )


def backprop(shown: figures.PanelData) -> Judged:
    """Judge what is said of Random-Backprop and SB."""
    sb_half, quicker = key_of("sb", 0.5), _quicker(shown)
    yield from _held(shown, "on-par", "random", 0.5, "is on par with SB", _on_par, sb_half)
    for share in dropped(shown, "random"):
        if share <= KEPT_UP:
            yield from _held(shown, "up-to-75", "random", share, _AS_ACCURATE, _no_worse)
        else:
            other, words = key_of("random", share), "is more accurate than Random-Backprop"
            yield from _held(shown, "higher-rates", "sb", share, words, _better, other)
    for method in ("random", "sb"):
        yield from _held(shown, "little-impact", method, 0.5, _AS_ACCURATE, _no_worse)
        yield from _held(shown, "little-impact", method, 0.5, _LESS_TIME, quicker)
    yield from _held(shown, "speeds-up", "random", KEPT_UP, _LESS_TIME, quicker)


def pruning(shown: figures.PanelData) -> Judged:
    """Judge what is said of EL2N and Diet-SB."""
    first, name = key_of("el2n", PRUNED_FIRST), f"EL2N at {percents(PRUNED_FIRST)}"
    diet, quicker = dropped(shown, "diet"), _quicker(shown)
    for share in diet:
        words = f"is no more accurate than {name}"
        yield from _held(shown, "limited", "diet", share, words, _no_better, first)
        words = f"takes less time per epoch than {name}"
        yield from _held(shown, "on-top", "diet", share, words, quicker, first)
    for share in dropped(shown, "el2n"):
        words, other = "costs more accuracy than SB", key_of("sb", share)
        yield from _held(shown, "stronger", "el2n", share, words, _worse, other)
    for share in diet:
        yield from _held(shown, "no-sacrifice", "diet", share, _AS_ACCURATE, _no_worse)
        yield from _held(shown, "no-sacrifice", "diet", share, _LESS_TIME, quicker)


def trends(shown: figures.PanelData) -> Judged:
    """Judge whether all of that is so on the data set that the poster only remarks on."""
    for judge in (backprop, pruning):
        for _, finding in judge(shown):
            yield "similar", finding


def dropped(shown: figures.PanelData, method: str) -> dict[float, RunGroup]:
    """Return the arms of a method by the share that they drop."""
    return {
        float(entry.key.removeprefix(f"{method}-")) / 100: arm
        for entry, arm in shown.pairs
        if entry.key.startswith(f"{method}-")
    }


def _held(
    shown: figures.PanelData,
    quote: str,
    method: str,
    share: float,
    words: str,
    judge: claims.Comparison,
    other: str = BASELINE,
) -> Judged:
    """Judge a method at a share against another entry."""
    claim = f"{NAMES[method]} {words}, {percents(share)} dropped"
    yield from claims.compared(shown, quote, claim, (key_of(method, share), other), judge)


def _gain(arm: RunGroup, other: RunGroup) -> Estimate:
    """Return by how many points an arm is more accurate than another."""
    return claims.paired(arm, other, lambda one, two: final_error(two) - final_error(one))


def _within(found: Estimate, margin: float) -> Verdict:
    """Judge whether a quantity lies between a margin's two sides."""
    sides = {is_below(found, margin), is_above(found, -margin)}
    if Verdict.FAILS in sides:
        return Verdict.FAILS
    return Verdict.HOLDS if sides == {Verdict.HOLDS} else Verdict.OPEN


def _on_par(claim: str, arm: RunGroup, other: RunGroup) -> Finding:
    gain = _gain(arm, other)
    words = f"{in_words(gain, _POINTS)}; on par is within ±{MARGIN:g}"
    return Finding(claim, _within(gain, MARGIN), words)


def _no_worse(claim: str, arm: RunGroup, other: RunGroup) -> Finding:
    gain = _gain(arm, other)
    words = f"{in_words(gain, _POINTS)}; allowed is down to {-MARGIN:+g}"
    return Finding(claim, is_above(gain, -MARGIN), words)


def _no_better(claim: str, arm: RunGroup, other: RunGroup) -> Finding:
    gain = _gain(arm, other)
    words = f"{in_words(gain, _POINTS)}; limited is up to {MARGIN:+g}"
    return Finding(claim, is_below(gain, MARGIN), words)


def _better(claim: str, arm: RunGroup, other: RunGroup) -> Finding:
    return above_zero(claim, _gain(arm, other), _POINTS)


def _worse(claim: str, arm: RunGroup, other: RunGroup) -> Finding:
    return above_zero(claim, _gain(other, arm), _POINTS)


def _quicker(shown: figures.PanelData) -> claims.Comparison:
    epochs = shown.panel.setting.recipe.epochs

    def compare(claim: str, arm: RunGroup, base: RunGroup) -> Finding:
        found = ratio(arm, base, epochs)
        return Finding(claim, is_below(found, 1.0), f"{with_interval(found)} of its time")

    return compare
