"""What the poster claims of its methods, judged by records of runs."""

from collections.abc import Callable, Iterator

from reproductions import claims, figures
from reproductions.diet_sb.methods import BASELINE, NAMES, PRUNED_FIRST, percents
from selective_backprop.lab.analysis.grouping import RunGroup
from selective_backprop.lab.analysis.statistics import Estimate, at, final_error
from selective_backprop.lab.analysis.tables import with_interval
from selective_backprop.lab.analysis.verdict import (
    Finding,
    Verdict,
    above_zero,
    in_words,
    is_above,
    is_below,
)
from selective_backprop.lab.records.schema import Run

MARGIN = 2.0  # points of accuracy within which the poster's "on par" is read
KEPT_UP = 0.75  # the share that Random-Backprop is said to drop without impact
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
    random, sb = (dropped(shown, method) for method in ("random", "sb"))
    if 0.5 in random and 0.5 in sb:
        gain = _gain(random[0.5], sb[0.5])
        words = f"{in_words(gain, 'points of accuracy')}; on par is within ±{MARGIN:g}"
        claim = _claim(shown, "random", 0.5, "is on par with SB")
        yield "on-par", Finding(claim, _within(gain, MARGIN), words)
    for share, arm in random.items():
        if share <= KEPT_UP:
            claim = _claim(shown, "random", share, "is as accurate as Baseline")
            yield from _against(shown, "up-to-75", claim, arm, _no_worse)
        elif share in sb:
            claim = _claim(shown, "sb", share, "is more accurate than Random-Backprop")
            yield "higher-rates", above_zero(claim, _gain(sb[share], arm), "points of accuracy")
    for method, arms in (("random", random), ("sb", sb)):
        if 0.5 in arms:
            arm, quote = arms[0.5], "little-impact"
            claim = _claim(shown, method, 0.5, "is as accurate as Baseline")
            yield from _against(shown, quote, claim, arm, _no_worse)
            claim = _claim(shown, method, 0.5, "takes less time per epoch than Baseline")
            yield from _against(shown, quote, claim, arm, _quicker(shown))
    if KEPT_UP in random:
        claim = _claim(shown, "random", KEPT_UP, "takes less time per epoch than Baseline")
        yield from _against(shown, "speeds-up", claim, random[KEPT_UP], _quicker(shown))


def pruning(shown: figures.PanelData) -> Judged:
    """Judge what is said of EL2N and Diet-SB."""
    sb, el2n, diet = (dropped(shown, method) for method in ("sb", "el2n", "diet"))
    first = el2n.get(PRUNED_FIRST)
    for share, arm in diet.items():
        if first is None:
            continue
        gain, other = _gain(arm, first), f"EL2N at {percents(PRUNED_FIRST)}"
        words = f"{in_words(gain, 'points of accuracy')}; limited is up to {MARGIN:+g}"
        claim = _claim(shown, "diet", share, f"is no more accurate than {other}")
        yield "limited", Finding(claim, is_below(gain, MARGIN), words)
        claim = _claim(shown, "diet", share, f"takes less time per epoch than {other}")
        yield "on-top", _quicker(shown)(claim, arm, first)
    for share, arm in el2n.items():
        if share in sb:
            claim = _claim(shown, "el2n", share, "costs more accuracy than SB")
            yield "stronger", above_zero(claim, _gain(sb[share], arm), "points of accuracy")
    for share, arm in diet.items():
        claim = _claim(shown, "diet", share, "is as accurate as Baseline")
        yield from _against(shown, "no-sacrifice", claim, arm, _no_worse)
        claim = _claim(shown, "diet", share, "takes less time per epoch than Baseline")
        yield from _against(shown, "no-sacrifice", claim, arm, _quicker(shown))


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


def _claim(shown: figures.PanelData, method: str, share: float, words: str) -> str:
    return f"{shown.title}: {NAMES[method]} {words}, {percents(share)} dropped"


def _gain(arm: RunGroup, other: RunGroup) -> Estimate:
    """Return by how many points an arm is more accurate than another."""
    return claims.paired(arm, other, lambda one, two: final_error(two) - final_error(one))


def _within(found: Estimate, margin: float) -> Verdict:
    """Judge whether a quantity lies between a margin's two sides."""
    sides = {is_below(found, margin), is_above(found, -margin)}
    if Verdict.FAILS in sides:
        return Verdict.FAILS
    return Verdict.HOLDS if sides == {Verdict.HOLDS} else Verdict.OPEN


Comparison = Callable[[str, RunGroup, RunGroup], Finding]


def _against(
    shown: figures.PanelData, quote: str, claim: str, arm: RunGroup, compare: Comparison
) -> Judged:
    """Judge an arm against the baseline, where that has runs."""
    base = shown.find(BASELINE)
    if base is not None:
        yield quote, compare(claim, arm, base)


def _no_worse(claim: str, arm: RunGroup, base: RunGroup) -> Finding:
    gain = _gain(arm, base)
    words = f"{in_words(gain, 'points of accuracy')}; allowed is down to {-MARGIN:+g}"
    return Finding(claim, is_above(gain, -MARGIN), words)


def _quicker(shown: figures.PanelData) -> Comparison:
    epochs = shown.panel.setting.recipe.epochs

    def compare(claim: str, arm: RunGroup, base: RunGroup) -> Finding:
        found = ratio(arm, base, epochs)
        return Finding(claim, is_below(found, 1.0), f"{with_interval(found)} of its time")

    return compare
