"""The figures of a comparison: an overview, also for a README or a paper, and more for its page."""

import math
import textwrap
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selective_backprop_lab.analysis.comparison import (
    CROWD,
    arms,
    leaders,
    length,
    lengths,
    measure_of,
    ranking,
)
from selective_backprop_lab.analysis.estimates import ENOUGH_SEEDS, curve
from selective_backprop_lab.analysis.facts import headline, notes
from selective_backprop_lab.analysis.findings import gains
from selective_backprop_lab.analysis.queries import BASELINE, BY_SEED, counted, final_error
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.frame import AXIS_LABELS, AXIS_WORDS
from selective_backprop_lab.report import panels
from selective_backprop_lab.report.panels import BANDED, LEADERS, Style, ceiling, span, styles


def draw_comparison(comparison: pd.DataFrame, path: Path, *, axis: str = "seconds") -> None:
    """Write the overview figure of a comparison as PNG, SVG or PDF, by the file's suffix."""
    content = drawn(overview(comparison, axis, caption=True), path.suffix[1:])
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)


def drawn(figure: Figure, kind: str) -> bytes:
    """Return a figure in a format; the same figure gives the same bytes."""
    file = BytesIO()
    with matplotlib.rc_context(panels.SETTINGS):
        figure.savefig(file, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else {})
    return file.getvalue()


def overview(
    comparison: pd.DataFrame, axis: str, *, caption: bool = False, stacked: bool = False
) -> Figure:
    """Draw error against cost and time (for the lowest), final errors, and each phase's time.

    For a phone, the four panels are stacked.
    """
    found, rows = arms(comparison), ranking(comparison)
    shown = leaders(comparison, LEADERS) if comparison.arm.nunique() > CROWD else [*found]
    curves = {label: found[label] for label in shown}
    longest = lengths(comparison)[0]
    banded = sum(length(own) == longest for own in curves.values()) <= BANDED
    with matplotlib.rc_context(panels.SETTINGS):
        height = 0.28 * len(rows) + 1.1
        size = (panels.ALONE, 2 * height + 9.6) if stacked else (11, height + 4.8)
        figure = Figure(figsize=size, layout="constrained")
        if stacked:  # in figures of their own, so that long names indent only their panel
            own = figure.subfigures(4, 1, squeeze=False, height_ratios=(3.7, 3.7, height, height))
            cost, time, ends, phases = [each.subplots() for each in own.flat]
        else:
            cost, time, ends, phases = figure.subplots(2, 2, height_ratios=(3.7, height)).flat
        _draw_error(cost, comparison, curves, "cost", banded)
        _draw_final_errors(ends, [found[label] for label in rows], comparison)
        if comparison[axis].notna().any():
            _draw_error(time, comparison, curves, axis, banded)
            panels.draw_phases(phases, {label: found[label] for label in rows}, room=panels.HALF)
            if not stacked:
                phases.set_yticks([])  # the names are beside the errors
                phases.set_ylim(ends.get_ylim())
        else:
            for panel in (time, phases):
                panel.set_axis_off()
        if caption:
            lines = textwrap.wrap(_caption(comparison, banded), 150)
            figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=9)
    return figure


def differences(comparison: pd.DataFrame) -> Figure | None:
    """Draw the gain of each arm at each length, the lowest first; None if there is no gain."""
    found = [each for each in gains(comparison) if math.isfinite(each.change.mean)]
    if not found:
        return None
    found.sort(key=lambda each: each.change.mean)
    look, edge = styles(comparison), ceiling(each.change.mean for each in found)
    with matplotlib.rc_context(panels.SETTINGS):
        figure = Figure(figsize=(panels.ALONE, 0.28 * len(found) + 0.9), layout="constrained")
        axes = figure.subplots()
        for row, each in enumerate(found):
            place = each.change.mean, row, each.change.half_width
            _draw_interval(axes, place, edge, look[each.label].colour, sign="+")
        axes.axvline(0.0, color="#888888", linewidth=1, dashes=(4, 3))
        _name_rows(axes, [each.label for each in found])
        axes.set_xlabel(measure_of(comparison).step)
        axes.grid(True, axis="x", color=panels.FAINT, linewidth=0.6)
    return figure


def _caption(comparison: pd.DataFrame, banded: bool) -> str:
    seeds = max((own.seed.nunique() for own in arms(counted(comparison)).values()), default=0)
    _, *others = lengths(comparison)
    longest = " (of the longest runs)" if others else ""
    shown = "One seed: the spread over seeds is unknown."
    if seeds >= ENOUGH_SEEDS:
        bands = f"bands{longest} and " if banded else ""
        shown = f"Lines: mean over seeds; {bands}bars: 95 % t-interval."
    elif seeds > 1:
        thin = f"; thin{longest}: the seeds" if banded else ""
        shown = f"Lines: mean over seeds{thin}. There are no intervals below {ENOUGH_SEEDS} seeds."
    shorter = " and ".join(str(each) for each in others)
    broken = f"Broken lines and hollow dots: {shorter}. " if shorter else ""
    return f"{headline(comparison)}. {shown} {broken}{' '.join(notes(comparison))}"


def _draw_error(
    axes: Axes, comparison: pd.DataFrame, found: dict[str, pd.DataFrame], axis: str, banded: bool
) -> None:
    look, first = styles(comparison), lengths(comparison)[0]
    ends: list[tuple[str, Style, float, float]] = []
    means: list[float] = []
    for label, own in found.items():
        known = counted(own)
        style, line = look[label], curve(known, axis)
        for _, run in own.drop(known.index).groupby(BY_SEED):
            broken = curve(run, axis)
            axes.plot(broken.x, broken.mean, color=style.colour, linestyle=":", linewidth=0.9)
            means += broken.mean
            if broken.x and not line.x:
                ends.append((f"{label} (unfinished)", style, broken.x[-1], broken.mean[-1]))
        if line.x:
            # Bands and names of several lengths would overlap, and the colour shows the arm.
            longest = length(own) == first
            width = 0.8 if longest else 0.55
            spread = longest and banded
            panels.draw_curve(axes, line, style, width=width, spread=spread, label=label)
            means += line.mean
            if spread and not line.has_band:
                means += [error for _, errors in line.seeds for error in errors]
            if longest:
                ends.append((own.arm.iloc[0], style, line.x[-1], line.mean[-1]))
    axes.set_xlabel(AXIS_LABELS[axis])
    some = "" if len(found) == comparison.label.nunique() else ", lowest strategies only"
    title = measure_of(comparison).axis
    title = f"{title[:1].upper()}{title[1:]} against {AXIS_WORDS[axis]}{some}"
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlim(left=0)
    panels.scale_error(axes, span(means))
    if 0 < len(ends) <= CROWD:
        panels.label_ends(axes, ends)
    elif ends:
        axes.legend(frameon=False, fontsize=7, ncols=2)


def _draw_final_errors(axes: Axes, rows: Sequence[pd.DataFrame], comparison: pd.DataFrame) -> None:
    look, known, found = styles(comparison), counted(comparison), lengths(comparison)
    places = {row.arm.iloc[0]: place for place, row in enumerate(rows)}
    errors = {label: final_error(own) for label, own in arms(known).items()}
    edge = ceiling(error.mean for error in errors.values())
    means, reach = list[float](), list[float]()
    for number, budget in enumerate(found):
        # The dot of the longest length is filled; others are hollow, and smaller each time.
        dot: dict[str, Any] = {"marker": "o", "markersize": max(3.5, 6.5 - 1.5 * number)}
        dot |= {"markerfacecolor": "white"} if number else {}
        for label, own in arms(known).items():
            if length(own) != budget:
                continue
            arm, error = own.arm.iloc[0], errors[label]
            # Lengths are one below the other, the longest first.
            alike = [*known.label[known.arm == arm].unique()]
            row = places[arm] + 0.6 * ((alike.index(label) + 0.5) / len(alike) - 0.5)
            place = error.mean, row, error.half_width
            if _draw_interval(axes, place, edge, look[label].colour, **dot):
                means.append(error.mean)
                reach += [max(0.0, e) for e in (error.low, error.high) if math.isfinite(e)]
        axes.plot([], [], color=panels.INK, linestyle="", label=f"length {budget.short}", **dot)
    plain = {label: errors[label].mean for label in known.label[known.arm == BASELINE].unique()}
    if plain:
        lowest = min(plain, key=plain.__getitem__)
        axes.axvline(plain[lowest], color=look[lowest].colour, linewidth=1, dashes=(4, 3))
    _name_rows(
        axes, [row.arm.iloc[0] + ("" if len(counted(row)) else " (unfinished)") for row in rows]
    )
    panels.scale_error(axes, span(means, reach), sideways=True)
    names = [f"length {each.short}" for each in found] if len(found) > 1 else []
    panels.entitle(
        axes, f"Final {measure_of(comparison).axis} of whole runs", names, room=panels.HALF
    )


def _draw_interval(
    axes: Axes, at: tuple[float, float, float], edge: float, colour: str, sign: str = "", **dot: Any
) -> bool:
    mean, row, half_width = at
    if mean > edge:
        place: dict[str, Any] = {"color": colour, "ha": "right", "va": "center"}
        axes.text(1, row, f"{mean:{sign}.1f} ▸", transform=axes.get_yaxis_transform(), **place)
        return False
    bar: dict[str, Any] = {"marker": "o", "color": colour, "elinewidth": 1.2, "capsize": 2} | dot
    axes.errorbar(mean, row, xerr=np.nan_to_num(half_width), **bar)
    return True


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)
