"""Figures of error curves, and what each says of the paper's claims."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from reproductions.claims import (
    ends_comparably,
    ends_higher,
    final,
    learns_sooner,
    mean_of,
    paired,
    timed,
)
from reproductions.drawing import (
    AXIS_LABELS,
    FEW,
    LINE,
    Cell,
    End,
    caption,
    draw_line,
    entitled,
    sheet,
    thousands,
)
from reproductions.figures import Found, PanelData, Presentation, presented
from selective_backprop.lab.analysis.grouping import RunGroup
from selective_backprop.lab.analysis.statistics import Axis, curve
from selective_backprop.lab.analysis.tables import Table, count, duration, percent, with_interval
from selective_backprop.lab.analysis.verdict import Finding, above_zero
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import label_ends, scale_error
from selective_backprop.lab.report.styles import span

Judge = Callable[[PanelData], Iterator[Finding]]
TIME: tuple[Axis, ...] = ("seconds", "cost")  # the seconds of the runs' own clock


def presenter(axes: tuple[Axis, ...], judge: Judge) -> Callable[[Found], Presentation]:
    """Return what draws error along axes, a row for each, and judges every panel."""

    def present(found: Found) -> Presentation:
        shown = timed(axes, found.runs)
        words = caption(found, curves=True, timed="seconds" in shown)
        return presented(found, sheet(by_axis(found, shown, _draw), words), _ends, judge)

    return present


def by_axis(
    found: Found, axes: tuple[Axis, ...], draw: Callable[[Axes, PanelData, Axis], object]
) -> list[list[Cell]]:
    """Return a row of panels for each axis, titles above the first."""

    def cell(panel: Axes, place: int, shown: PanelData, axis: Axis) -> None:
        draw(panel, shown, axis)
        if shown is found.panels[0]:
            panel.set_ylabel("test error (%)")
        if not place:
            entitled(panel, shown.title)

    return [
        [partial(cell, place=place, shown=shown, axis=axis) for shown in found.panels]
        for place, axis in enumerate(axes)
    ]


def _draw(panel: Axes, shown: PanelData, axis: Axis) -> None:
    """Draw the error of each entry along an axis, named where it ends."""
    ends: list[End] = []
    means: list[float] = []
    few = len(shown.pairs) <= FEW
    for entry, arm in shown.pairs:
        line, style = curve(arm.runs, axis), entry.style
        draw_line(panel, line.x, line.mean, style, (line.low, line.high) if few else None)
        x, y = line.x[-1], line.mean[-1]
        if not few and math.isfinite(line.low[-1]):
            reach = [[y - line.low[-1]], [line.high[-1] - y]]
            panel.errorbar(x, y, yerr=reach, elinewidth=1.0, capsize=2.0, color=style.colour)
        means += line.mean
        ends.append((entry.label, style, x, y))
    panel.set_xlabel(AXIS_LABELS[axis])
    panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter(FuncFormatter(thousands))
    panel.locator_params(axis="x", nbins=5)
    scale_error(panel, span(means))
    label_ends(panel, ends, line=LINE)


def present_poster(found: Found) -> Presentation:
    """Draw error against images backpropagated, with the share that each strategy filtered."""

    def named(shown: PanelData) -> PanelData:
        entries = tuple(
            replace(entry, label=f"{entry.label}, {percent(_filtered(arm))} filtered")
            if arm.runs
            else entry
            for entry, arm in zip(shown.panel.entries, shown.arms, strict=True)
        )
        return replace(shown, panel=replace(shown.panel, entries=entries))

    panels = tuple(map(named, found.panels))
    return presenter(("trained",), by_images)(replace(found, panels=panels))


def _filtered(arm: RunGroup) -> float:
    """Return the share of the candidates that an arm did not train on, over all its runs."""
    last = [run.points[-1] for run in arm.runs]
    return 1 - sum(p.trained for p in last) / sum(p.candidates for p in last)


def _ends(shown: PanelData) -> Table:
    """Return where each entry ended, and what it took."""
    columns: dict[str, tuple[str, Callable[[float], str]]] = {
        "updates": ("updates", count),
        "backpropagated": ("trained", count),
        "forwards": ("forwards", count),
        "cost": ("cost", duration),
        "wall s": ("seconds", duration),
        "CPU s": ("cpu_seconds", duration),
    }
    rows = []
    for entry, arm in shown.pairs:
        last = [run.points[-1] for run in arm.runs]
        means = [
            write(sum(getattr(point, field) for point in last) / len(last))
            for field, write in columns.values()
        ]
        rows.append((entry.label, with_interval(final(arm)), percent(_filtered(arm)), *means))
    return Table(("strategy", "final error %", "filtered", *columns), tuple(rows), shown.title)


def sooner(axes: tuple[Axis, ...], *keys: str) -> Judge:
    """Return the judge of: these entries learn sooner along the axes than traditional training."""

    def judge(shown: PanelData) -> Iterator[Finding]:
        base = shown.find("traditional")
        for entry, arm in shown.pairs:
            if base is None or entry.key not in keys:
                continue
            for axis in timed(axes, base.runs):
                claim = f"{shown.title}: {entry.label} learns sooner than Traditional"
                yield learns_sooner(claim, arm, base, axis)

    return judge


def by_time(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 7, and SB against what costs as much without choosing: that is our claim."""
    yield from sooner(TIME, "sb", "stale", "kath18")(shown)
    ours = shown.find("sb")
    for key, name in (
        ("shortened", "Traditional, shortened to its cost"),
        ("scored", "Random, scored"),
    ):
        other = shown.find(key)
        if ours is not None and other is not None:
            claim = f"{shown.title}: SB learns sooner than {name} (implied)"
            yield learns_sooner(claim, ours, other, "cost")


def little_lost(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 11: older losses save forward passes and cost little accuracy."""
    (_, fresh), *others = shown.pairs
    for entry, arm in others:
        claim = f"{shown.title}: {entry.label} ends about where fresh losses do"
        yield ends_comparably(claim, arm, fresh)
        saved = paired(arm, fresh, _forwards_saved)
        claim = f"{shown.title}: {entry.label} takes fewer forward passes"
        yield above_zero(claim, saved, "% of forward passes saved")


def _forwards_saved(one: Run, two: Run) -> float:
    return 100 * (1 - one.points[-1].forwards / two.points[-1].forwards)


def robust(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 12: SB is faster throughout, and ends higher only at a fifth flipped."""
    base, ours, title = shown.find("traditional"), shown.find("sb"), shown.title
    if base is None or ours is None:
        return
    yield learns_sooner(f"{title}: SB learns sooner than Traditional", ours, base, "cost")
    if shown.panel.entries[0].plan.noise < 0.2:
        yield ends_comparably(f"{title}: SB ends about where Traditional does", ours, base)
    else:
        yield ends_higher(f"{title}: SB ends higher than Traditional", ours, base)


def selective_is_fast(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 13: the more selective, the faster, and the higher the final error."""
    pairs = [(entry, arm) for entry, arm in shown.pairs if entry.plan.arm != "traditional"]
    pairs.sort(key=lambda pair: pair[0].plan.settings.rate)
    if len(pairs) < 2:
        return
    (least, few), (most, many) = pairs[0], pairs[-1]
    title = f"{shown.title}: {least.label}"
    yield learns_sooner(f"{title} learns sooner than {most.label}", few, many, "cost")
    yield ends_higher(f"{title} ends higher than {most.label}", few, many)
    base = shown.find("traditional")
    if base is not None:
        for entry, arm in pairs:
            claim = f"{shown.title}: {entry.label} learns sooner than Traditional"
            yield learns_sooner(claim, arm, base, "cost")


def by_images(shown: PanelData) -> Iterator[Finding]:
    """Judge the poster: fewer images backpropagated to the same error, and most filtered."""
    yield from sooner(("trained",), "sb")(shown)
    ours = shown.find("sb")
    if ours is not None:
        share = mean_of(
            ours, lambda run: 100 * (1 - run.points[-1].trained / run.points[-1].candidates)
        )
        claim = f"{shown.title}: SB leaves images out of backpropagation"
        yield above_zero(claim, share, "% of the images filtered")
