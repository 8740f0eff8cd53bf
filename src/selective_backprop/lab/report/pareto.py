"""The figure of what whole runs cost and where they end, with the front that nobody beats."""

import html
from collections.abc import Sequence
from typing import Any

from selective_backprop.lab.analysis.grouping import CROWD, Arm, Comparison
from selective_backprop.lab.analysis.statistics import (
    Axis,
    at,
    budget_lines,
    estimate,
    leaders,
)
from selective_backprop.lab.report.plots import (
    AXES,
    LEADERS,
    Entry,
    Plot,
    base_layout,
    error_scales,
    first_scale,
    number,
)
from selective_backprop.lab.report.styles import aside, span, strategy_colours

FRONT = "front"
_AXES: tuple[Axis, ...] = ("cost", "seconds", "trained")


def front(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the places of cost and error that no other place beats in both.

    Returns:
        The cheapest first; of equals one. A place that is worse in one and equal in the other is
        beaten.
    """
    best, kept = float("inf"), []
    for cost, error in sorted(places):
        if error < best:
            kept.append((cost, error))
            best = error
    return kept


def pareto_plot(comparison: Comparison) -> Plot | None:
    """Return final error against the cost of whole runs; None where no run is finished."""
    lines = budget_lines(comparison.arms)
    if not lines:
        return None
    colours = strategy_colours(line.name for line in lines)
    ahead = {arm.name for arm in leaders(comparison, LEADERS)}
    shown = {line.name: line.name in ahead or not comparison.is_crowd for line in lines}
    means = [error.mean for line in lines for error in line.errors]
    scales = error_scales(span(means, [end for line in lines for end in line.reach]))
    layout = base_layout(x_title=AXES["cost"], y_title="final test error (%)")
    layout["yaxis"] |= first_scale(scales)
    x = {axis: _places(comparison, axis) for axis in _AXES}
    data = []
    widest = max(place for places in x["cost"] for place in places)
    few = sum(shown.values()) <= CROWD
    for line, places in zip(lines, x["cost"], strict=True):
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers+text" if few else "lines+markers",
                "name": html.escape(line.name),
                "legendgroup": line.name,
                "visible": shown[line.name],
                "x": places,
                "customdata": [*line.costs],
                "y": [number(error.mean) for error in line.errors],
                "text": [*[""] * (len(places) - 1), html.escape(line.name)],
                # Off the interval, which stands upright through the point.
                "textposition": f"top {'left' if places[-1] > widest / 2 else 'right'}",
                "cliponaxis": False,
                "error_y": {
                    "type": "data",
                    "array": [number(error.half_width) for error in line.errors],
                    "thickness": 1.2,
                    "width": 3,
                },
                "line": {"color": colours[line.name], "width": 1.5},
                "marker": {"size": 9},
                "hovertemplate": "%{fullData.name}<br>%{y:.2f} % at cost %{customdata:.4~g}"
                "<extra></extra>",
            }
        )
    # A front of all arms, the hidden ones too: what beats an arm does so unseen.
    fronts = {
        axis: front([*_pairs(x[axis], [[e.mean for e in line.errors] for line in lines])])
        for axis in _AXES
    }
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": FRONT,
            "legendgroup": FRONT,
            "visible": True,
            "x": [cost for cost, _ in fronts["cost"]],
            "y": [error for _, error in fronts["cost"]],
            "line": {"shape": "hv", "dash": "dot", "width": 1.5, "color": "#888888"},
            "hoverinfo": "skip",
        }
    )
    choices: dict[str, dict[str, Any]] = {
        axis: {
            "x": [*x[axis], [cost for cost, _ in fronts[axis]]],
            "y": {len(lines): [error for _, error in fronts[axis]]},
            "title": AXES[axis],
        }
        for axis in _AXES
    }
    return Plot(
        name="pareto",
        title="Final error against cost",
        data=data,
        layout=layout,
        height=420,
        legend=[
            *(Entry(line.name, colours[line.name], "solid", shown[line.name]) for line in lines),
            Entry(FRONT, "#888888", "dot"),
        ],
        choices=choices,
        scales=scales,
    )


def _places(comparison: Comparison, axis: Axis) -> list[list[float]]:
    """Return where each strategy's lengths stand on an axis, the cheapest first."""
    names = list(dict.fromkeys(arm.name for arm in comparison.arms if arm.runs))
    found = []
    for position, name in enumerate(names):
        own = sorted(
            (arm for arm in comparison.arms if arm.name == name and arm.runs),
            key=lambda arm: arm.cost,
        )
        places = [_mean_at(arm, axis) for arm in own]
        # Arms of equal budgets would hide each other's intervals.
        budgeted = axis == "cost" and any(arm.length.unit == "cost" for arm in own)
        found.append(aside(places, position, len(names)) if budgeted else places)
    return found


def _mean_at(arm: Arm, axis: Axis) -> float:
    return estimate([at(run.points[-1], axis) for run in arm.runs]).mean


def _pairs(x: Sequence[Sequence[float]], y: Sequence[Sequence[float]]) -> Any:
    for places, errors in zip(x, y, strict=True):
        yield from zip(places, errors, strict=True)
