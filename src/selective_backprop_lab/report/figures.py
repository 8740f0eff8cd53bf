"""The static figure of a comparison, for a paper or a README: PNG, SVG or PDF, by its suffix."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selective_backprop_lab.analysis.grouping import CROWD, Comparison, RunGroup
from selective_backprop_lab.analysis.run_summary import headline, notes
from selective_backprop_lab.analysis.statistics import (
    AXIS_LABELS,
    AXIS_WORDS,
    ENOUGH_SEEDS,
    Axis,
    curve,
    final_estimate,
    leaders,
    ranking,
)
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.report.panels import (
    HALF,
    INK,
    SETTINGS,
    draw_curve,
    draw_phases,
    entitle,
    label_ends,
    scale_error,
)
from selective_backprop_lab.report.styles import BANDED, LEADERS, Style, ceiling, span, styles


def draw_comparison(comparison: Comparison, path: str | Path, *, axis: Axis = "seconds") -> None:
    """Draw error against cost and against time, final errors, and where the time went.

    Of more strategies than curves that can be told apart, only those that end lowest get curves;
    final errors and time have a row for each. Unfinished runs are drawn thin and dotted.
    """
    path = Path(path)
    rows = ranking(comparison)
    curves = leaders(comparison, LEADERS) if comparison.is_crowd else comparison.groups
    banded = sum(group.length == comparison.lengths[0] for group in curves) <= BANDED
    with matplotlib.rc_context(SETTINGS):
        height = 0.28 * len(rows) + 1.1
        figure = Figure(figsize=(11, height + 4.8), layout="constrained")
        grid = figure.subplots(2, 2, height_ratios=(3.7, height))
        _draw_error(grid[0][0], comparison, curves, "cost", banded)
        _draw_error(grid[0][1], comparison, curves, axis, banded)
        _draw_final_errors(grid[1][0], rows, comparison)
        draw_phases(grid[1][1], rows, room=HALF)
        grid[1][1].set_yticks([])  # the names stand beside the errors
        grid[1][1].set_ylim(grid[1][0].get_ylim())
        figure.suptitle(
            "\n".join(textwrap.wrap(_caption(comparison, banded), 150)),
            x=0.01,
            ha="left",
            fontsize=9,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a date, or the same records would never give the same file twice.
        undated = {"Date": None} if path.suffix == ".svg" else {}
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix[1:], dpi=160, metadata=undated)


def _caption(comparison: Comparison, banded: bool) -> str:
    seeds = max((len(group.runs) for group in comparison.groups), default=0)
    longest = " (of the longest runs)" if len(comparison.lengths) > 1 else ""
    shown = "One seed: the spread over seeds is unknown."
    if seeds >= ENOUGH_SEEDS:
        bands = f"bands{longest} and " if banded else ""
        shown = f"Lines: mean over seeds; {bands}bars: 95 % t-interval."
    elif seeds > 1:
        thin = f"; thin{longest}: the seeds" if banded else ""
        shown = f"Lines: mean over seeds{thin}. Below {ENOUGH_SEEDS} seeds there is no interval."
    shorter = " and ".join(str(length) for length in comparison.lengths[1:])
    broken = f"Broken lines and hollow dots: {shorter}. " if shorter else ""
    return f"{headline(comparison)}. {shown} {broken}{' '.join(notes(comparison))}"


def _draw_error(
    axes: Axes, comparison: Comparison, groups: Sequence[RunGroup], axis: Axis, banded: bool
) -> None:
    look = styles(comparison)
    ends: list[tuple[str, Style, float, float]] = []
    means: list[float] = []
    for group in groups:
        style, line = look[group.label], curve(group.runs, axis)
        for broken in (curve([run], axis) for run in group.unfinished):
            axes.plot(broken.x, broken.mean, color=style.colour, linestyle=":", linewidth=0.9)
            means += broken.mean
            if broken.x and not line.x:
                ends.append((f"{group.label} (unfinished)", style, broken.x[-1], broken.mean[-1]))
        if line.x:
            # Bands and names of several lengths would cover each other; colour tells the strategy.
            longest = group.length == comparison.lengths[0]
            width = 0.8 if longest else 0.55
            spread = longest and banded
            draw_curve(axes, line, style, width=width, spread=spread, label=group.label)
            means += line.drawn if spread else line.mean
            if longest:
                ends.append((group.name, style, line.x[-1], line.mean[-1]))
    axes.set_xlabel(AXIS_LABELS[axis])
    some = "" if len(groups) == len(comparison.groups) else ", of those that end lowest"
    title = _capital(comparison.measure.axis)
    axes.set_title(f"{title} against {AXIS_WORDS[axis]}{some}", loc="left", fontsize=9)
    axes.set_xlim(left=0)
    scale_error(axes, span(means))
    if 0 < len(ends) <= CROWD:
        label_ends(axes, ends)
    elif ends:
        axes.legend(frameon=False, fontsize=7, ncols=2)


def _draw_final_errors(axes: Axes, rows: Sequence[RunGroup], comparison: Comparison) -> None:
    """Draw a row for each strategy, with a dot for each of its lengths."""
    look = styles(comparison)
    places = {row.name: place for place, row in enumerate(rows)}
    edge = ceiling(final_estimate(group).mean for group in comparison.groups if group.runs)
    means, reach = list[float](), list[float]()
    for number, length in enumerate(comparison.lengths):
        # The longest is filled, the others are hollow and ever smaller.
        dot: dict[str, Any] = {"marker": "o", "markersize": max(3.5, 6.5 - 1.5 * number)}
        dot |= {"markerfacecolor": "white"} if number else {}
        for group in comparison.groups:
            if group.length == length and group.runs:
                error, colour = final_estimate(group), look[group.label].colour
                # Lengths stand below each other, the longest first.
                own = comparison.strategies[group.name][::-1]
                row = places[group.name] + 0.6 * ((own.index(group) + 0.5) / len(own) - 0.5)
                if error.mean > edge:
                    text = f"{error.mean:.1f} ▸"
                    style: dict[str, Any] = {"color": colour, "ha": "right", "va": "center"}
                    axes.text(1, row, text, transform=axes.get_yaxis_transform(), **style)
                    continue
                half = error.half_width if error.half_width > 0 else 0.0
                bar: dict[str, Any] = {"color": colour, "elinewidth": 1.2, "capsize": 2}
                axes.errorbar(error.mean, row, xerr=half, **bar, **dot)
                means.append(error.mean)
                reach += error.ends
        axes.plot([], [], color=INK, linestyle="", label=f"length {length.short}", **dot)
    if comparison.baseline is not None:
        error, colour = final_estimate(comparison.baseline), look[comparison.baseline.label].colour
        axes.axvline(error.mean, color=colour, linewidth=1, dashes=(4, 3))
    names = [row.name if row.runs else f"{row.name} (unfinished)" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    scale_error(axes, span(means, reach), sideways=True)
    lengths = [f"length {length.short}" for length in comparison.lengths]
    title = f"Final {comparison.measure.axis} of whole runs"
    entitle(axes, title, lengths if len(lengths) > 1 else [], room=HALF)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
