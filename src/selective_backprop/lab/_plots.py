"""The figures of the report: what Plotly draws, and what the page's buttons switch.

A figure is plain data here; the page's script gives it the colours of the reader's light or dark
theme. Every text may hold anything, so it is escaped: Plotly reads a part of HTML in its labels.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from selective_backprop.lab._styles import PHASE_COLOURS, Style, phases_of, styles
from selective_backprop.lab.comparison import Arm, Comparison
from selective_backprop.lab.statistics import (
    Axis,
    Curve,
    curve,
    estimate,
    final_error,
    phase_seconds,
)

# What may stand along the error curve, and what it is called there.
AXES: dict[Axis, str] = {
    "cost": "cost, in traditional epochs",
    "seconds": "wall seconds, evaluation left out",
    "trained": "examples trained on",
    "updates": "updates",
}
_LOG_FROM = 4.0  # highest over lowest error; an axis that shows more is logarithmic
_TICKS = [a * 10.0**b for b in range(-3, 3) for a in (1, 2, 5)]


@dataclass(frozen=True)
class Entry:
    """One entry of a figure's legend; it switches the traces whose `legendgroup` is its label."""

    label: str  # plain text
    colour: str
    dash: str | None = None  # None for an area


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One figure of the page."""

    name: str
    title: str  # for readers who cannot see it, too
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int  # pixels
    legend: list[Entry]
    # What buttons change: a word on the button, then new x per trace and the axis' new settings.
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    scales: dict[str, dict[str, Any]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        return {
            "name": self.name,
            "data": self.data,
            "layout": {**self.layout, "height": self.height},
            "choices": self.choices,
            "scales": self.scales,
        }


def error_plot(comparison: Comparison) -> Plot:
    """Return test error as training goes on, along an axis that the reader chooses."""
    look = styles(comparison.arms)
    traces: list[dict[str, Any]] = []
    means: list[float] = []
    legend: list[Entry] = []
    x: dict[Axis, list[list[float]]] = {axis: [] for axis in AXES}
    for arm in comparison.arms:
        curves = {axis: curve(arm.runs, axis) for axis in AXES}
        if curves["cost"].x:
            means += curves["cost"].mean
            traces += [_band(arm, curves["cost"], look), _line(arm, curves["cost"], look)]
            legend.append(Entry(arm.label, look[arm.label].colour, look[arm.label].dash))
            for axis, line in curves.items():
                x[axis] += [[*line.x, *reversed(line.x)], [*line.x]]
        for run in arm.unfinished:
            broken = {axis: curve([run], axis) for axis in AXES}
            if broken["cost"].x:
                means += broken["cost"].mean
                label = f"{arm.label}, seed {run.header.seed}, unfinished"
                traces.append(_broken(arm, label, broken["cost"], look))
                legend.append(Entry(label, look[arm.label].colour, "dot"))
                for axis, line in broken.items():
                    x[axis].append([*line.x])
    for trace, places in zip(traces, x["cost"], strict=True):
        trace["x"] = places
    scales = _scales(means)
    layout = _layout(x_title=AXES["cost"], y_title="test error (%)")
    layout["yaxis"] |= _first(scales)
    return Plot(
        name="error",
        title="Test error as training goes on",
        data=traces,
        layout=layout,
        height=440,
        legend=legend,
        choices={axis: {"x": x[axis], "title": title} for axis, title in AXES.items()},
        scales=scales,
    )


def budget_plot(comparison: Comparison) -> Plot | None:
    """Return final error against the cost of whole runs; None where there is one length only."""
    if len(comparison.lengths) < 2:
        return None
    look = styles(comparison.arms)
    traces = []
    legend: list[Entry] = []
    means: list[float] = []
    for name in dict.fromkeys(arm.name for arm in comparison.arms if arm.runs):
        arms = [arm for arm in comparison.arms if arm.name == name and arm.runs]
        arms.sort(key=lambda arm: arm.cost)
        errors = [estimate([final_error(run) for run in arm.runs]) for arm in arms]
        means += [error.mean for error in errors]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": html.escape(name),
                "legendgroup": name,
                "x": [arm.cost for arm in arms],
                "y": [_number(error.mean) for error in errors],
                "error_y": {
                    "type": "data",
                    "array": [_number(error.half_width) for error in errors],
                    "thickness": 1.2,
                    "width": 3,
                },
                "line": {"color": look[arms[0].label].colour, "width": 2},
                "marker": {"size": 7},
                "hovertemplate": "%{fullData.name}<br>cost %{x:.4g}<br>%{y:.2f} %<extra></extra>",
            }
        )
        legend.append(Entry(name, look[arms[0].label].colour, "solid"))
    scales = _scales(means)
    layout = _layout(x_title=AXES["cost"], y_title="final test error (%)")
    layout["yaxis"] |= _first(scales)
    return Plot(
        name="budgets",
        title="Final error against cost",
        data=traces,
        layout=layout,
        height=380,
        legend=legend,
        scales=scales,
    )


def phase_plot(comparison: Comparison) -> Plot | None:
    """Return where the time of each arm went; None where no run is finished."""
    arms = [arm for arm in comparison.arms if arm.runs]
    if not arms:
        return None
    totals = [phase_seconds(arm.runs) for arm in arms]
    labels = [html.escape(arm.label) for arm in arms]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": html.escape(phase),
            "legendgroup": phase,
            "y": labels,
            "x": [total.get(phase, 0.0) for total in totals],
            "marker": {"color": _phase_colour(phase)},
            "hovertemplate": "%{y}<br>%{fullData.name} %{x:.3g} s<extra></extra>",
        }
        for phase in phases_of(totals)
    ]
    layout = _layout(x_title="wall seconds per run", y_title="")
    layout["yaxis"] = {"automargin": True, "autorange": "reversed", "showgrid": False}
    layout |= {"barmode": "stack", "bargap": 0.28, "dragmode": False}
    return Plot(
        name="phases",
        title="Where the time went",
        data=traces,
        layout=layout,
        height=110 + 34 * len(arms),
        legend=[Entry(phase, _phase_colour(phase)) for phase in phases_of(totals)],
    )


_Y_AXIS = {"automargin": True, "zeroline": False, "showline": False, "ticks": ""}


def _phase_colour(phase: str) -> str:
    return PHASE_COLOURS.get(phase, "#999999")


def _layout(*, x_title: str, y_title: str) -> dict[str, Any]:
    return {
        "autosize": True,
        "margin": {"l": 10, "r": 10, "t": 30},
        "xaxis": {
            "title": {"text": x_title},
            "rangemode": "tozero",
            "zeroline": False,
            "showgrid": False,
            "showline": True,
            "ticks": "outside",
            "automargin": True,
        },
        "yaxis": {**_Y_AXIS, "title": {"text": y_title}},
        "showlegend": False,
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }


def _band(arm: Arm, line: Curve, look: dict[str, Style]) -> dict[str, Any]:
    # A logarithmic axis has no place for what an interval may reach below zero.
    floor = 0.3 * min((mean for mean in line.mean if mean > 0), default=1.0)
    low = [_number(max(value, floor)) for value in line.low]
    return {
        "type": "scatter",
        "mode": "lines",
        "legendgroup": arm.label,
        "hoverinfo": "skip",
        "y": [*map(_number, line.high), *reversed(low)],
        "fill": "toself",
        "fillcolor": look[arm.label].faded(0.16),
        "line": {"width": 0},
    }


def _line(arm: Arm, line: Curve, look: dict[str, Style]) -> dict[str, Any]:
    style = look[arm.label]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": html.escape(arm.label),
        "legendgroup": arm.label,
        "y": [*map(_number, line.mean)],
        "line": {"color": style.colour, "dash": style.dash, "width": style.width},
        "hovertemplate": "%{fullData.name}<br>%{y:.2f} % at %{x:.4~g}<extra></extra>",
    }


def _broken(arm: Arm, label: str, line: Curve, look: dict[str, Style]) -> dict[str, Any]:
    return _line(arm, line, look) | {
        "name": html.escape(label),
        "legendgroup": label,
        "line": {"color": look[arm.label].colour, "dash": "dot", "width": 1},
        "opacity": 0.8,
    }


def _scales(means: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Return the settings of the error axis, the better one first; bands do not widen it."""
    seen = [mean for mean in means if math.isfinite(mean)]
    if not seen:
        return {}
    low, high = min(seen), max(seen)
    margin = 0.06 * (high - low) or 0.1 * high or 1.0
    linear = {"type": "linear", "range": [max(0.0, low - margin), high + margin]}
    if low <= 0:
        return {"linear": linear}
    log = {
        "type": "log",
        "range": [math.log10(0.88 * low), math.log10(1.08 * high)],
        "tickvals": _TICKS,
        "ticktext": [f"{tick:g}" for tick in _TICKS],
    }
    linear |= {"tickvals": None, "ticktext": None}
    both = {"log": log, "linear": linear}
    return both if high / low > _LOG_FROM else dict(reversed(both.items()))


def _first(scales: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return next(iter(scales.values()), {})


def _number(value: float) -> float | None:
    """Return a number as JSON can hold it; Plotly leaves a gap at None."""
    return value if math.isfinite(value) else None
