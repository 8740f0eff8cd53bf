"""The figures of the report: what Plotly draws, and what the page's buttons switch.

A figure is plain data here; the page's script gives it the colours of the reader's light or dark
theme. Every text may hold anything, so it is escaped: Plotly reads a part of HTML in its labels.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from selective_backprop.lab.analysis.grouping import Arm, Comparison
from selective_backprop.lab.analysis.statistics import (
    Axis,
    Curve,
    curve,
    estimate,
    final_error,
    leaders,
    phase_seconds,
    ranking,
)
from selective_backprop.lab.report.styles import (
    PHASE_COLOURS,
    Span,
    Style,
    phases_of,
    span,
    strategy_colours,
    styles,
)

# What may stand along the error curve, and what it is called there.
AXES: dict[Axis, str] = {
    "cost": "cost, in traditional epochs",
    "seconds": "wall seconds, evaluation left out",
    "trained": "backward passes, in examples",
    "updates": "updates",
    "candidates": "candidates: examples that came up",
}
_TANGLE = 6  # curves with bands that can still be followed
LEADERS = 5  # whose curves are shown at first where there is a crowd
_TICKS = [a * 10.0**b for b in range(-3, 3) for a in (1, 2, 5)]


@dataclass(frozen=True)
class Entry:
    """One entry of a figure's legend; it switches the traces whose `legendgroup` is its label."""

    label: str  # plain text
    colour: str
    dash: str | None = None  # None for an area
    shown: bool = True  # at first


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One figure of the page."""

    name: str
    title: str  # for readers who cannot see it, too
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int  # pixels
    legend: list[Entry]
    # What buttons change: a word on the button, then new x per trace (and new y of some traces, by
    # position) and the axis' new settings.
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    scales: dict[str, dict[str, Any]] = field(default_factory=dict)
    # What a slider changes: a word for each of its places, and new x per trace; the last at first.
    steps: list[dict[str, Any]] = field(default_factory=list)
    named_ends: bool = False  # whether each curve is named where it ends, if there is room

    def as_json(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        return {
            "name": self.name,
            "data": self.data,
            "layout": {**self.layout, "height": self.height},
            "choices": self.choices,
            "scales": self.scales,
            "steps": self.steps,
            "namedEnds": self.named_ends,
        }


def error_plot(comparison: Comparison) -> Plot:
    """Return test error as training goes on, along an axis that the reader chooses."""
    look, shown = styles(comparison.arms), shown_at_first(comparison)
    traces: list[dict[str, Any]] = []
    means: list[float] = []
    legend: list[Entry] = []
    x: dict[Axis, list[list[float]]] = {axis: [] for axis in AXES}
    for arm in comparison.arms:
        curves = {axis: curve(arm.runs, axis) for axis in AXES}
        if curves["cost"].x:
            means += curves["cost"].mean
            traces += [_band(arm, curves["cost"], look), _line(arm, curves["cost"], look)]
            style = look[arm.label]
            legend.append(Entry(arm.label, style.colour, style.dash, arm in shown))
            for axis, line in curves.items():
                x[axis] += [[*line.x, *reversed(line.x)], [*line.x]]
        for run in arm.unfinished:
            broken = {axis: curve([run], axis) for axis in AXES}
            if broken["cost"].x:
                means += broken["cost"].mean
                label = f"{arm.label}, seed {run.header.seed}, unfinished"
                traces.append(_broken(arm, label, broken["cost"], look))
                legend.append(Entry(label, look[arm.label].colour, "dot", arm in shown))
                for axis, line in broken.items():
                    x[axis].append([*line.x])
    for trace, places in zip(traces, x["cost"], strict=True):
        trace["x"] = places
    hidden = {entry.label for entry in legend if not entry.shown}
    for trace in traces:
        trace["visible"] = trace["legendgroup"] not in hidden
    scales = error_scales(span(means))
    layout = base_layout(x_title=AXES["cost"], y_title="test error (%)")
    layout["yaxis"] |= first_scale(scales)
    return Plot(
        name="error",
        title="Test error as training goes on",
        data=traces,
        layout=layout,
        height=440,
        legend=legend,
        choices={axis: {"x": x[axis], "title": title} for axis, title in AXES.items()},
        scales=scales,
        named_ends=True,
    )


def final_plot(comparison: Comparison) -> Plot | None:
    """Return final errors, a row for each arm of a crowd; None where there is none."""
    ranked = [arm for arm in ranking(comparison) if arm.runs]
    if not comparison.is_crowd or not ranked:
        return None
    errors = [estimate([final_error(run) for run in arm.runs]) for arm in ranked]
    shown = span([error.mean for error in errors])
    colours = strategy_colours(arm.name for arm in ranked)
    trace = {
        "type": "scatter",
        "mode": "markers",
        "y": [html.escape(arm.label) for arm in ranked],
        "x": [number(error.mean) for error in errors],
        "error_x": {
            "type": "data",
            "array": [number(error.half_width) for error in errors],
            "color": "#888888",  # else that of the points, of which there are many
            "thickness": 1.2,
            "width": 3,
        },
        "marker": {"size": 10, "color": [colours[arm.name] for arm in ranked]},
        "hovertemplate": "%{y}<br>%{x:.2f} %<extra></extra>",
    }
    layout = base_layout(x_title="final test error (%)", y_title="")
    layout["xaxis"] |= {"rangemode": "normal", "showgrid": True} | first_scale(error_scales(shown))
    layout["yaxis"] = {"automargin": True, "autorange": "reversed", "showgrid": True}
    return Plot(
        name="final",
        title="Final error of every arm",
        data=[trace],
        layout=layout,
        height=90 + 26 * len(ranked),
        legend=[],
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
    layout = base_layout(x_title="wall seconds per run", y_title="")
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


def shown_at_first(comparison: Comparison) -> Sequence[Arm]:
    """Return the arms whose curves are shown at first: all, where that is no tangle.

    Else the longest arms that rival each other; of a crowd, those that end lowest.
    """
    if len(comparison.arms) <= _TANGLE:
        return comparison.arms
    if comparison.is_crowd:
        return leaders(comparison, LEADERS)
    for length in comparison.lengths:
        rivals = [arm for arm in comparison.arms if arm.length == length]
        if len(rivals) > 1:
            return rivals
    return comparison.arms


def _phase_colour(phase: str) -> str:
    return PHASE_COLOURS.get(phase, "#999999")


def base_layout(*, x_title: str, y_title: str) -> dict[str, Any]:
    """Return what the layouts of all figures share, in no colour of their own."""
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
    low = [number(max(value, floor)) for value in line.low]
    return {
        "type": "scatter",
        "mode": "lines",
        "legendgroup": arm.label,
        "hoverinfo": "skip",
        "y": [*map(number, line.high), *reversed(low)],
        "fill": "toself",
        "fillcolor": look[arm.label].faded(0.13),
        "line": {"width": 0},
    }


def _line(arm: Arm, line: Curve, look: dict[str, Style]) -> dict[str, Any]:
    style = look[arm.label]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": html.escape(arm.label),
        "legendgroup": arm.label,
        "y": [*map(number, line.mean)],
        "line": {"color": style.colour, "dash": style.dash, "width": style.width},
        "hovertemplate": "%{fullData.name}<br>%{y:.2f} % at %{x:.4~g}<extra></extra>",
    }


def _broken(arm: Arm, label: str, line: Curve, look: dict[str, Style]) -> dict[str, Any]:
    return _line(arm, line, look) | {
        "name": html.escape(label),
        "legendgroup": label,
        "meta": "unnamed",  # where it ends
        "line": {"color": look[arm.label].colour, "dash": "dot", "width": 1},
        "opacity": 0.8,
    }


def error_scales(shown: Span | None) -> dict[str, dict[str, Any]]:
    """Return the settings of an error axis by the name of its scale, the better one first."""
    if shown is None:
        return {}
    linear = {"type": "linear", "range": [*shown.linear], "tickvals": None, "ticktext": None}
    if not shown.positive:
        return {"linear": linear}
    log = {
        "type": "log",
        "range": [math.log10(end) for end in shown.log],
        "tickvals": _TICKS,
        "ticktext": [f"{tick:g}" for tick in _TICKS],
    }
    return {"log": log, "linear": linear} if shown.wide else {"linear": linear, "log": log}


def first_scale(scales: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the settings of the better scale."""
    return next(iter(scales.values()), {})


def number(value: float) -> float | None:
    """Return a number as JSON can hold it; Plotly leaves a gap at None."""
    return value if math.isfinite(value) else None
