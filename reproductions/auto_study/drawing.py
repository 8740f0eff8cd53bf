"""Figures of the study: what strategies cost and where they end, and how far from traditional."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from reproductions.auto_study.fronts import Front
from reproductions.auto_study.protocol import OURS, RANDOM, Ground
from reproductions.jiang2019.drawing import sheet, under
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.analysis.statistics import Estimate
from selective_backprop.lab.report.panels import FAINT, INK, label_ends, scale_error
from selective_backprop.lab.report.styles import Style, span, strategy_colours

_NAMED = (BASELINE, RANDOM, OURS)
_FAR = 2.0  # a difference is drawn up to so many times the spread of the closer half of them
_BESIDE = "#9a9a9a"
_ABREAST = 2  # panels


def draw_ground(ground: Ground, front: Front, caption: str) -> Figure:
    """Draw one ground: fronts, then at each budget the differences to traditional training.

    Args:
        ground: what was run.
        front: its errors, those of traditional training and `auto` among them.
        caption: written under the axes.
    """
    rows = math.ceil((1 + len(front.budgets)) / _ABREAST)
    with sheet(rows, _ABREAST, height=3.2) as (figure, grid):
        first, *others = [panel for row in grid for panel in row]
        _draw_fronts(first, front)
        first.set_title(ground.title, loc="left", fontsize=9)
        order = sorted(
            (arm for arm in front.arms if arm != BASELINE),
            key=lambda arm: front.mean(arm, front.budgets[-1]).mean,
            reverse=True,
        )
        for panel, budget in zip(others, front.budgets, strict=False):
            _draw_differences(panel, front, order, budget)
        for panel in others[len(front.budgets) :]:
            panel.set_axis_off()
        under(figure, caption)
    return figure


def _draw_fronts(panel: Axes, front: Front) -> None:
    colours = strategy_colours(front.arms)
    shown = [arm for arm in front.arms if arm in {*_NAMED, *map(front.best_rival, front.budgets)}]
    ends: list[tuple[str, Style, float, float]] = []
    means: list[float] = []
    reach: list[float] = []
    for arm in shown:
        line = [front.mean(arm, budget) for budget in front.budgets]
        style = Style(colours[arm], "solid", 2.4 if arm == OURS else 1.5)
        heights = [each.mean for each in line]
        panel.errorbar(
            front.budgets,
            heights,
            yerr=[0.0 if math.isnan(each.half_width) else each.half_width for each in line],
            color=style.colour,
            linewidth=0.75 * style.width,
            elinewidth=0.8,
            capsize=2,
            marker="o",
            markersize=3.5,
            zorder=3 if arm == OURS else 2,
        )
        means += heights
        reach += [end for each in line for end in (each.low, each.high) if math.isfinite(end)]
        ends.append((arm, style, front.budgets[-1], heights[-1]))
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(FixedLocator(front.budgets))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("cost of the whole run, in traditional epochs")
    panel.set_ylabel("final test error (%)")
    scale_error(panel, span(means, reach))
    label_ends(panel, ends, line=0.06)


def _draw_differences(panel: Axes, front: Front, order: Sequence[str], budget: float) -> None:
    colours = strategy_colours(order)
    found = [front.difference(arm, budget, BASELINE) for arm in order]
    reach = max(_reach(found), _reach([found[order.index(OURS)]]) / _FAR)
    for height, (arm, each) in enumerate(zip(order, found, strict=True)):
        colour = colours[arm] if arm in _NAMED else _BESIDE
        if abs(each.mean) > reach:  # far off: an arrow at the edge, with the number
            edge = math.copysign(reach, each.mean)
            panel.plot(edge, height, marker=">" if edge > 0 else "<", color=colour, markersize=5)
            panel.text(
                0.86 * edge,
                height,
                f"{each.mean:+.1f}",
                va="center",
                ha="right" if edge > 0 else "left",
                fontsize=7,
                color="#555555",
            )
            continue
        half = 0.0 if math.isnan(each.half_width) else each.half_width
        panel.errorbar(
            each.mean,
            height,
            xerr=half,
            color=colour,
            marker="o",
            markersize=6 if arm == OURS else 4,
            elinewidth=1.6 if arm == OURS else 1.0,
            capsize=2,
        )
    panel.axvline(0.0, color=INK, linewidth=0.8)
    panel.set_xlim(-1.08 * reach, 1.08 * reach)
    panel.set_ylim(-0.6, len(order) - 0.4)
    panel.set_yticks(range(len(order)), order)
    panel.tick_params(axis="y", length=0)
    panel.grid(True, axis="x", color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.set_xlabel(f"points above {BASELINE}")
    panel.set_title(f"at a cost of {budget:g}", loc="left", fontsize=9)


def _reach(found: Sequence[Estimate]) -> float:
    """Return how far a panel shows: all of the closer half, twice as far."""
    sizes = sorted(
        abs(each.mean) + (0.0 if math.isnan(each.half_width) else each.half_width)
        for each in found
        if math.isfinite(each.mean)
    )
    if not sizes:
        return 1.0
    return max(_FAR * sizes[(len(sizes) - 1) // 2], 1e-3)
