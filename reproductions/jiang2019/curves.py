"""Figures of error curves, and what each says of the paper's claims."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from reproductions.jiang2019.clock import timed
from reproductions.jiang2019.drawing import draw_curves
from reproductions.jiang2019.items import Filled, Found, Presentation
from reproductions.jiang2019.judging import (
    Finding,
    above_zero,
    ends_comparably,
    ends_higher,
    learns_sooner,
)
from reproductions.jiang2019.text import Grid, percent
from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.analysis.statistics import Axis, Estimate, estimate, final_error
from selective_backprop.lab.analysis.tables import count, duration, with_interval

Judge = Callable[[Filled], Iterator[Finding]]
TIME: tuple[Axis, ...] = ("seconds", "cost")  # the seconds of the runs' own clock


def presenter(axes: tuple[Axis, ...], judge: Judge) -> Callable[[Found], Presentation]:
    """Return what draws error along axes, and judges every panel."""

    def present(found: Found) -> Presentation:
        return Presentation(
            figure=draw_curves(found, timed(axes, found.runs)),
            tables=tuple(ends_table(filled) for filled in found.panels),
            findings=tuple(finding for filled in found.panels for finding in judge(filled)),
        )

    return present


def present_poster(found: Found) -> Presentation:
    """Draw error against images backpropagated, with the share that each strategy filtered."""
    return presenter(("trained",), by_images)(
        replace(found, panels=tuple(map(_shared, found.panels)))
    )


def filtered(arm: Arm) -> float:
    """Return the share of the candidates that an arm did not train on, over all its runs."""
    last = [run.points[-1] for run in arm.runs]
    return 1 - sum(p.trained for p in last) / sum(p.candidates for p in last)


def _shared(filled: Filled) -> Filled:
    """Write the share that each entry filtered behind its name."""
    pairs = list(zip(filled.panel.entries, filled.arms, strict=True))
    entries = tuple(
        replace(entry, label=f"{entry.label}, {percent(filtered(arm))} filtered")
        if arm.runs
        else entry
        for entry, arm in pairs
    )
    return replace(filled, panel=replace(filled.panel, entries=entries))


def ends_table(filled: Filled) -> Grid:
    """Return where each entry ended, and what it took."""
    rows = []
    for entry, arm in filled.pairs:
        last = [run.points[-1] for run in arm.runs]
        number = len(last)
        rows.append(
            (
                entry.label,
                with_interval(estimate([final_error(run) for run in arm.runs])),
                percent(filtered(arm)),
                count(sum(p.updates for p in last) / number),
                count(sum(p.trained for p in last) / number),
                count(sum(p.forwards for p in last) / number),
                duration(sum(p.cost for p in last) / number),
                duration(sum(p.seconds for p in last) / number),
                duration(sum(p.cpu_seconds for p in last) / number),
            )
        )
    head = (
        "strategy",
        "final error %",
        "filtered",
        "updates",
        "backpropagated",
        "forwards",
        "cost",
        "wall s",
        "CPU s",
    )
    return Grid(filled.panel.title, head, tuple(rows))


def sooner(axes: tuple[Axis, ...], *keys: str) -> Judge:
    """Return the judge of: these entries learn sooner along the axes than traditional training."""

    def judge(filled: Filled) -> Iterator[Finding]:
        base = filled.find("traditional")
        for entry, arm in filled.pairs:
            if base is None or entry.key not in keys:
                continue
            for axis in timed(axes, base.runs):
                claim = f"{filled.panel.title}: {entry.label} learns sooner than Traditional"
                yield learns_sooner(claim, arm, base, axis)

    return judge


def against_controls(filled: Filled) -> Iterator[Finding]:
    """Judge SB against what costs as much without choosing; the paper has no such claim."""
    ours = filled.find("sb")
    for key, name in (
        ("shortened", "Traditional, shortened to its cost"),
        ("scored", "Random, scored"),
    ):
        other = filled.find(key)
        if ours is not None and other is not None:
            claim = f"{filled.panel.title}: SB learns sooner than {name} (implied)"
            yield learns_sooner(claim, ours, other, "cost")


def by_time(filled: Filled) -> Iterator[Finding]:
    """Judge figure 7: SB and the others reach low errors in less time, controls included."""
    yield from sooner(TIME, "sb", "stale", "kath18")(filled)
    yield from against_controls(filled)


def little_lost(filled: Filled) -> Iterator[Finding]:
    """Judge figure 11: older losses save forward passes and cost little accuracy."""
    arms = [(entry.label, arm) for entry, arm in filled.pairs]
    if not arms:
        return
    _, fresh = arms[0]
    for label, arm in arms[1:]:
        claim = f"{filled.panel.title}: {label} ends about where fresh losses do"
        yield ends_comparably(claim, arm, fresh)
        claim = f"{filled.panel.title}: {label} takes fewer forward passes"
        yield above_zero(claim, _forwards_saved(arm, fresh), "% of forward passes saved")


def robust(filled: Filled) -> Iterator[Finding]:
    """Judge figure 12: SB is faster throughout, and ends higher only at a fifth flipped."""
    base, ours = filled.find("traditional"), filled.find("sb")
    if base is None or ours is None:
        return
    title = filled.panel.title
    yield learns_sooner(f"{title}: SB learns sooner than Traditional", ours, base, "cost")
    if filled.panel.entries[0].plan.noise < 0.2:
        yield ends_comparably(f"{title}: SB ends about where Traditional does", ours, base)
    else:
        yield ends_higher(f"{title}: SB ends higher than Traditional", ours, base)


def selective_is_fast(filled: Filled) -> Iterator[Finding]:
    """Judge figure 13: the more selective, the faster, and the higher the final error."""
    pairs = [(entry, arm) for entry, arm in filled.pairs if entry.plan.arm != "traditional"]
    pairs.sort(key=lambda pair: pair[0].plan.settings.rate)
    if len(pairs) < 2:
        return
    (least, few), (most, many) = pairs[0], pairs[-1]
    title = filled.panel.title
    yield learns_sooner(
        f"{title}: {least.label} learns sooner than {most.label}", few, many, "cost"
    )
    yield ends_higher(f"{title}: {least.label} ends higher than {most.label}", few, many)
    base = filled.find("traditional")
    if base is not None:
        for entry, arm in pairs:
            claim = f"{title}: {entry.label} learns sooner than Traditional"
            yield learns_sooner(claim, arm, base, "cost")


def by_images(filled: Filled) -> Iterator[Finding]:
    """Judge the poster: fewer images backpropagated to the same error, and most filtered."""
    yield from sooner(("trained",), "sb")(filled)
    ours = filled.find("sb")
    if ours is not None:
        shares = [
            100 * (1 - run.points[-1].trained / run.points[-1].candidates) for run in ours.runs
        ]
        claim = f"{filled.panel.title}: SB leaves images out of backpropagation"
        yield above_zero(claim, estimate(shares), "% of the images filtered")


def _forwards_saved(arm: Arm, fresh: Arm) -> Estimate:
    theirs = {run.header.seed: run.points[-1].forwards for run in fresh.runs}
    return estimate(
        [
            100 * (1 - run.points[-1].forwards / theirs[run.header.seed])
            for run in arm.runs
            if run.header.seed in theirs
        ]
    )
