"""Figures of the study: what strategies cost and where they end, and how far from traditional."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from reproductions.auto_study.budget_curves import BudgetCurves
from reproductions.auto_study.protocol import OURS, RANDOM, Benchmark
from reproductions.drawing import Cell, End, draw_whiskers, entitled, ruled, sheet, spread_of
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.analysis.statistics import Estimate
from selective_backprop.lab.report.panels import INK, label_ends, scale_error
from selective_backprop.lab.report.styles import Style, span, strategy_colours

_NAMED = (BASELINE, RANDOM, OURS)
_FAR = 2.0  # a difference is drawn up to so many times the spread of the closer half of them
_BESIDE = "#9a9a9a"


def draw_benchmark(benchmark: Benchmark, curves: BudgetCurves, caption: str) -> Drawing:
    """Draw errors over cost, then at each budget the differences to traditional training."""
    order = sorted(
        (arm for arm in curves.arms if arm != BASELINE),
        key=lambda arm: curves.mean(arm, curves.budgets[-1]).mean,
        reverse=True,
    )
    cells: list[Cell | None] = [
        partial(_draw_curves, curves=curves, title=benchmark.title),
        *(
            partial(_draw_differences, curves=curves, order=order, budget=budget)
            for budget in curves.budgets
        ),
    ]
    if len(cells) % 2:
        cells.append(None)
    return sheet([cells[i : i + 2] for i in range(0, len(cells), 2)], caption, height=3.2)


def _draw_curves(panel: Axes, curves: BudgetCurves, title: str) -> None:
    colours = strategy_colours(curves.arms)
    rivals = set(map(curves.best_rival, curves.budgets))
    ends: list[End] = []
    shown: list[Estimate] = []
    for arm in (arm for arm in curves.arms if arm in {*_NAMED, *rivals}):
        ours = arm == OURS
        line = [curves.mean(arm, budget) for budget in curves.budgets]
        style = Style(colours[arm], "solid", 2.4 if ours else 1.5)
        look = {"elinewidth": 0.8, "capsize": 2, "marker": "o", "markersize": 3.5}
        draw_whiskers(panel, curves.budgets, line, style, **look, zorder=3 if ours else 2)
        shown += line
        ends.append((arm, style, curves.budgets[-1], line[-1].mean))
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(FixedLocator(curves.budgets))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("cost of the whole run, in traditional epochs")
    panel.set_ylabel("final test error (%)")
    reach = [end for each in shown for end in (each.low, each.high) if math.isfinite(end)]
    scale_error(panel, span([each.mean for each in shown], reach))
    label_ends(panel, ends, line=0.06)
    entitled(panel, title)


def _draw_differences(
    panel: Axes, curves: BudgetCurves, order: Sequence[str], budget: float
) -> None:
    colours = strategy_colours(order)
    found = [curves.difference(arm, budget, BASELINE) for arm in order]
    reach = max(_reach(found), _reach([found[order.index(OURS)]]) / _FAR)
    for height, (arm, each) in enumerate(zip(order, found, strict=True)):
        colour, ours = colours[arm] if arm in _NAMED else _BESIDE, arm == OURS
        if abs(each.mean) > reach:  # far off: an arrow at the edge, with the number
            edge = math.copysign(reach, each.mean)
            panel.plot(edge, height, marker=">" if edge > 0 else "<", color=colour, markersize=5)
            words, side = f"{each.mean:+.1f}", "right" if edge > 0 else "left"
            look: dict[str, Any] = {"va": "center", "ha": side, "fontsize": 7, "color": "#555555"}
            panel.text(0.86 * edge, height, words, **look)
            continue
        sizes: dict[str, Any] = {"markersize": 6 if ours else 4, "elinewidth": 1.6 if ours else 1.0}
        half = spread_of(each)
        panel.errorbar(each.mean, height, xerr=half, color=colour, marker="o", capsize=2, **sizes)
    panel.axvline(0.0, color=INK, linewidth=0.8)
    panel.set_xlim(-1.08 * reach, 1.08 * reach)
    panel.set_ylim(-0.6, len(order) - 0.4)
    panel.set_yticks(range(len(order)), order)
    panel.tick_params(axis="y", length=0)
    ruled(panel, "x")
    panel.set_xlabel(f"points above {BASELINE}")
    entitled(panel, f"at a cost of {budget:g}")


def _reach(found: Sequence[Estimate]) -> float:
    """Return how far a panel shows: all of the closer half, twice as far."""
    sizes = sorted(abs(each.mean) + spread_of(each) for each in found if math.isfinite(each.mean))
    return max(_FAR * sizes[(len(sizes) - 1) // 2], 1e-3) if sizes else 1.0
