"""The static figure of a comparison, for a paper or a README: PNG, SVG or PDF, by its suffix."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selective_backprop.lab.analysis.grouping import CROWD, Arm, Comparison, gather
from selective_backprop.lab.analysis.run_summary import headline, notes
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    Axis,
    budget_lines,
    curve,
    leaders,
)
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.crowd import draw_crowd
from selective_backprop.lab.report.panels import (
    DASHES,
    FULL,
    HALF,
    SETTINGS,
    draw_phases,
    entitle,
    label_ends,
    scale_error,
)
from selective_backprop.lab.report.styles import Style, aside, span, strategy_colours, styles

_MOST_BARS = 16  # more are drawn of the longest runs alone
_LEADERS = 5  # whose curves are drawn where there are too many arms for all
_AXES: tuple[Axis, ...] = ("cost", "seconds")


def draw_comparison(runs: Sequence[Run], path: str | Path) -> None:
    """Draw error against cost and against seconds, where the time went, and budgets if several.

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
        _draw_error(figure.add_subplot(grid[0, column]), comparison, comparison.arms, axis)
    arms = [arm for arm in comparison.arms if arm.runs]
    if len(arms) > _MOST_BARS:
        arms = [arm for arm in arms if arm.length == arms[0].length]
    panel = figure.add_subplot(grid[1, 0] if several else grid[1, :])
    draw_phases(panel, arms, room=HALF if several else FULL)
    if several:
        _draw_budgets(figure.add_subplot(grid[1, 1]), comparison)
    return figure


def _crowded(comparison: Comparison) -> Figure:
    rows = 0.24 * len({arm.name for arm in comparison.arms}) + 0.8
    figure = Figure(figsize=(11, rows + 4.6), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(rows, 3.4))
    draw_crowd(figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1]), comparison)
    for column, axis in enumerate(_AXES):
        panel = figure.add_subplot(grid[1, column])
        _draw_error(panel, comparison, leaders(comparison, _LEADERS), axis)
    return figure


def _caption(comparison: Comparison) -> str:
    spread = max((len(arm.runs) for arm in comparison.arms), default=0)
    bands = "bands, of the longest runs," if len(comparison.lengths) > 1 else "bands"
    shown = (
        f"Lines: mean over seeds; {bands} and bars: 95 % t-interval."
        if spread > 1
        else "One seed: the spread over seeds is unknown."
    )
    shorter = " and ".join(length.words for length in comparison.lengths[1:])
    marks = "Hollow dots" if comparison.is_crowd else "Broken lines"
    broken = f"{marks}: {shorter}. " if shorter else ""
    return f"{headline(comparison)}. {shown} {broken}{' '.join(notes(comparison))}"


def _draw_error(axes: Axes, comparison: Comparison, arms: Sequence[Arm], axis: Axis) -> None:
    look = styles(comparison.arms)
    ends: list[tuple[str, Style, float, float]] = []
    means: list[float] = []
    for arm in arms:
        style, line = look[arm.label], curve(arm.runs, axis)
        for broken in (curve([run], axis) for run in arm.unfinished):
            axes.plot(broken.x, broken.mean, color=style.colour, linestyle=":", linewidth=0.9)
            means += broken.mean
            if broken.x and not line.x:
                ends.append((f"{arm.label} (unfinished)", style, broken.x[-1], broken.mean[-1]))
        if line.x:
            axes.plot(
                line.x,
                line.mean,
                color=style.colour,
                linestyle=DASHES[style.dash],
                linewidth=style.width * (0.8 if arm.length == comparison.lengths[0] else 0.55),
                label=arm.label,
            )
            # The bands of several lengths would cover each other and every line.
            if arm.length == comparison.lengths[0]:
                axes.fill_between(
                    line.x, line.low, line.high, color=style.colour, alpha=0.12, linewidth=0
                )
            means += line.mean
            # Colour tells the arm; naming the ends of all lengths would be a thicket.
            if arm.length == comparison.lengths[0]:
                ends.append((arm.name, style, line.x[-1], line.mean[-1]))
    axes.set_xlabel(
        "cost, in traditional epochs" if axis == "cost" else "wall seconds, evaluation left out"
    )
    some = "" if len(arms) == len(comparison.arms) else ", of the arms that end lowest"
    axes.set_title(f"Test error (%) against {AXIS_WORDS[axis]}{some}", loc="left", fontsize=9)
    axes.set_xlim(left=0)
    scale_error(axes, span(means))
    if 0 < len(ends) <= CROWD:
        label_ends(axes, ends)
    elif ends:
        axes.legend(frameon=False, fontsize=7, ncols=2)


def _draw_budgets(axes: Axes, comparison: Comparison) -> None:
    lines = budget_lines(comparison.arms)
    colours = strategy_colours(line.name for line in lines)
    for position, line in enumerate(lines):
        axes.errorbar(
            aside(line.costs, position, len(lines)),
            [error.mean for error in line.errors],
            yerr=[0.0 if e.seeds < 2 else e.half_width for e in line.errors],
            color=colours[line.name],
            marker="o",
            markersize=4,
            linewidth=1.6,
            capsize=2,
            elinewidth=1,
            label=line.name,
        )
    axes.set_xlabel("cost of the whole run, in traditional epochs")
    means = [error.mean for line in lines for error in line.errors]
    scale_error(axes, span(means, [end for line in lines for end in line.reach]))
    title = "Final test error (%) of whole runs"
    entitle(axes, title, [line.name for line in lines], room=HALF)
