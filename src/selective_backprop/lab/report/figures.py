"""The static figure of a comparison, for a paper or a README: PNG, SVG or PDF, by its suffix."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selective_backprop.lab.analysis.grouping import CROWD, Comparison, RunGroup, gather
from selective_backprop.lab.analysis.run_summary import headline, notes
from selective_backprop.lab.analysis.statistics import (
    AXIS_LABELS,
    AXIS_WORDS,
    ENOUGH_SEEDS,
    Axis,
    curve,
    final_estimate,
    leaders,
    ranking,
)
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import (
    FULL,
    HALF,
    INK,
    SETTINGS,
    draw_curve,
    draw_phases,
    entitle,
    label_ends,
    scale_error,
)
from selective_backprop.lab.report.styles import Style, aside, span, strategy_colours, styles

_MOST_BARS = 16  # more are drawn of the longest runs alone
_LEADERS = 5  # whose curves are drawn where there are too many for all
_AXES: tuple[Axis, ...] = ("cost", "seconds")


def draw_comparison(runs: Sequence[Run], path: str | Path) -> None:
    """Draw error against cost and against seconds, where the time went, and lengths if several.

    Of more strategies than curves that can be told apart, each gets a row with its final errors
    and its time, and only those that end lowest get curves.

    Args:
        runs: records of one comparison, in any order; unfinished ones are drawn thin and dotted.
        path: where to, with a suffix that Matplotlib knows (.png, .svg, .pdf).

    Raises:
        RecordError: if the runs cannot be compared.
    """
    path = Path(path)
    comparison = gather(runs)
    with matplotlib.rc_context(SETTINGS):
        figure = _crowded(comparison) if comparison.is_crowd else _usual(comparison)
        figure.suptitle(
            "\n".join(textwrap.wrap(_caption(comparison), 150)), x=0.01, ha="left", fontsize=9
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a date, or the same records would never give the same file twice.
        undated = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=160, metadata=undated)


def _usual(comparison: Comparison) -> Figure:
    several = len(comparison.lengths) > 1
    figure = Figure(figsize=(11, 7.4 if several else 7.0), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1.15, 1 if several else 0.75))
    for column, axis in enumerate(_AXES):
        _draw_error(figure.add_subplot(grid[0, column]), comparison, comparison.groups, axis)
    groups = [group for group in comparison.groups if group.runs]
    if len(groups) > _MOST_BARS:
        groups = [group for group in groups if group.length == groups[0].length]
    panel = figure.add_subplot(grid[1, 0] if several else grid[1, :])
    draw_phases(panel, groups, room=HALF if several else FULL)
    if several:
        _draw_lengths(figure.add_subplot(grid[1, 1]), comparison)
    return figure


def _crowded(comparison: Comparison) -> Figure:
    rows = ranking(comparison)
    height = 0.24 * len(rows) + 0.8
    figure = Figure(figsize=(11, height + 4.6), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(height, 3.4))
    errors, times = (figure.add_subplot(grid[0, column]) for column in range(2))
    _draw_final_errors(errors, rows, comparison)
    draw_phases(times, rows, room=HALF)
    times.set_yticks([])  # the names stand beside the errors
    times.set_ylim(errors.get_ylim())
    for column, axis in enumerate(_AXES):
        panel = figure.add_subplot(grid[1, column])
        _draw_error(panel, comparison, leaders(comparison, _LEADERS), axis)
    return figure


def _caption(comparison: Comparison) -> str:
    seeds = max((len(group.runs) for group in comparison.groups), default=0)
    longest = ", of the longest runs" if len(comparison.lengths) > 1 else ""
    shown = "One seed: the spread over seeds is unknown."
    if seeds >= ENOUGH_SEEDS:
        shown = f"Lines: mean over seeds; bands{longest} and bars: 95 % t-interval."
    elif seeds > 1:
        shown = f"Lines: mean over seeds; thin{longest}: the seeds; bars: 95 % t-interval."
    shorter = " and ".join(length.words for length in comparison.lengths[1:])
    marks = "Hollow dots" if comparison.is_crowd else "Broken lines"
    broken = f"{marks}: {shorter}. " if shorter else ""
    return f"{headline(comparison)}. {shown} {broken}{' '.join(notes(comparison))}"


def _draw_error(axes: Axes, comparison: Comparison, groups: Sequence[RunGroup], axis: Axis) -> None:
    look = styles(comparison.groups)
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
            draw_curve(axes, line, style, width=width, spread=longest, label=group.label)
            means += line.drawn if longest else line.mean
            if longest:
                ends.append((group.name, style, line.x[-1], line.mean[-1]))
    axes.set_xlabel(AXIS_LABELS[axis])
    some = "" if len(groups) == len(comparison.groups) else ", of those that end lowest"
    axes.set_title(f"Test error (%) against {AXIS_WORDS[axis]}{some}", loc="left", fontsize=9)
    axes.set_xlim(left=0)
    scale_error(axes, span(means))
    if 0 < len(ends) <= CROWD:
        label_ends(axes, ends)
    elif ends:
        axes.legend(frameon=False, fontsize=7, ncols=2)


def _draw_lengths(axes: Axes, comparison: Comparison) -> None:
    """Draw final error against cost: a point for each length of a strategy."""
    lines = comparison.strategies
    colours = strategy_colours(lines)
    means, reach = [], []
    for position, (name, groups) in enumerate(lines.items()):
        errors = [final_estimate(group) for group in groups]
        axes.errorbar(
            aside([group.cost for group in groups], position, len(lines)),
            [error.mean for error in errors],
            yerr=[0.0 if error.seeds < 2 else error.half_width for error in errors],
            color=colours[name],
            marker="o",
            markersize=4,
            linewidth=1.6,
            capsize=2,
            elinewidth=1,
            label=name,
        )
        means += [error.mean for error in errors]
        reach += [end for error in errors for end in error.ends]
    axes.set_xlabel("cost of the whole run, in traditional epochs")
    scale_error(axes, span(means, reach))
    entitle(axes, "Final test error (%) of whole runs", list(lines), room=HALF)


def _draw_final_errors(axes: Axes, rows: Sequence[RunGroup], comparison: Comparison) -> None:
    """Draw a row for each strategy of a crowd, with a dot for each of its lengths."""
    colours = strategy_colours(row.name for row in rows)
    places = {row.name: place for place, row in enumerate(rows)}
    # The longest is filled, the others are hollow and ever smaller.
    dots: dict[Any, dict[str, Any]] = {
        length: {"marker": "o", "markersize": max(3.5, 6.5 - 1.5 * number)}
        | ({"markerfacecolor": "white"} if number else {})
        for number, length in enumerate(comparison.lengths)
    }
    means, reach = [], []
    for group in comparison.groups:
        error = final_estimate(group)
        if group.runs:
            half = 0.0 if error.seeds < 2 else error.half_width
            look: dict[str, Any] = {"color": colours[group.name], "elinewidth": 1.2, "capsize": 2}
            axes.errorbar(error.mean, places[group.name], xerr=half, **look, **dots[group.length])
            means.append(error.mean)
            reach += error.ends
    if comparison.baseline is not None:
        error, colour = final_estimate(comparison.baseline), colours[comparison.baseline.name]
        axes.axvline(error.mean, color=colour, linewidth=1, dashes=(4, 3))
    names = [row.name if row.runs else f"{row.name} (unfinished)" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    scale_error(axes, span(means, reach), sideways=True)
    lengths = [f"length {length.short}" for length in dots] if len(dots) > 1 else []
    for label, dot in zip(lengths, dots.values(), strict=False):
        axes.plot([], [], color=INK, linestyle="", label=label, **dot)
    entitle(axes, "Final test error (%) of whole runs", lengths, room=HALF)
