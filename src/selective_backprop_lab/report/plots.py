"""The report's figures, as Plotly draws them, with its own legends and menus.

Plotly reads a part of HTML in its labels, so every text of a record is escaped.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from selective_backprop_lab.analysis.findings import against_traditional
from selective_backprop_lab.analysis.grouping import Comparison
from selective_backprop_lab.analysis.statistics import (
    AXIS_LABELS,
    Axis,
    Curve,
    curve,
    final_estimate,
    mean_at_end,
)
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.records.schema import Run
from selective_backprop_lab.report.styles import (
    BANDED,
    PHASE_COLOURS,
    Span,
    Style,
    ceiling,
    phase_table,
    span,
    styles,
)

_CURVE_AXES: tuple[Axis, ...] = ("cost", "seconds", "trained", "updates", "candidates")
_FRONT_AXES: tuple[Axis, ...] = ("cost", "seconds", "trained")
_SHORT: dict[Axis, str] = {"seconds": "wall seconds", "trained": "backward passes"}
_TICKS = [a * 10.0**b for b in range(-3, 3) for a in (1, 2, 5)]
_GREY, _FAINT = "#888888", "rgba(128,128,128,0.25)"  # on white and on black
_AXIS = {"automargin": True, "zeroline": False, "gridcolor": _FAINT, "linecolor": _GREY}
_LOOK = go.layout.Template(
    layout={
        "margin": {"l": 10, "r": 10, "t": 50, "b": 10},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": _FAINT, "activecolor": _GREY},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#33383f", "font": {"color": "#ffffff"}},
        "dragmode": False,  # a finger that scrolls the page must not zoom what it crosses
        "legend": {
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "traceorder": "normal",
            "bgcolor": "rgba(0,0,0,0)",
        },
        "xaxis": {**_AXIS, "showgrid": False, "showline": True, "ticks": "outside"},
        "yaxis": {**_AXIS, "showline": False, "ticks": ""},
    }
)
MARKS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
BARS = {"type": "data", "thickness": 1.2, "width": 3}  # how intervals look
ROWS = {"automargin": True, "autorange": "reversed", "type": "category", "showgrid": True}


def new_figure(traces: Iterable[Any], *, x: str, y: str, height: int) -> go.Figure:
    """Return a figure in the looks that all share; its legend gets room below its height."""
    figure = go.Figure([*traces])
    entries = sum(trace.showlegend is not False for trace in figure.data)
    figure.update_layout(template=_LOOK, height=height + 22 * math.ceil(entries / 5))
    figure.update_layout(xaxis_title=x, yaxis_title=y, showlegend=entries > 0)
    return figure


def menu(
    entries: Mapping[str, Sequence[dict[str, Any]]], *, side: str, method: str = "update"
) -> dict[str, Any]:
    """Return a menu above a figure, on its left or right side.

    An entry is what it changes: of traces and of the layout, or of the layout alone where the
    method is "relayout", which makes a row of buttons.
    """
    row = method == "relayout"
    return {
        "buttons": [
            {"label": label, "method": method, "args": [*changes]}
            for label, changes in entries.items()
        ],
        "type": "buttons" if row else "dropdown",
        "direction": "right" if row else "down",
        "x": 0 if side == "left" else 1,
        "xanchor": side,
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": 8},
        "bgcolor": "rgba(128,128,128,0.12)",
        "bordercolor": _FAINT,
    }


def named(label: str, style: Style) -> dict[str, Any]:
    """Return how a trace is called, and whether it is shown at first."""
    visible = True if style.shown else "legendonly"
    return {"name": html.escape(label), "legendgroup": label, "visible": visible}


def error_plot(comparison: Comparison) -> go.Figure:
    """Return test error as training goes on, along an axis that the reader chooses."""
    look = styles(comparison)
    lines: list[tuple[str, Style, Sequence[Run]]] = []
    for group in comparison.groups:
        style = look[group.label]
        lines.append((group.label, style, group.runs))
        for run in group.unfinished:
            label = f"{group.label}, seed {run.header.seed}, unfinished"
            lines.append((label, replace(style, dash="dot", width=1.0), (run,)))
    seen = [line for line in lines if line[1].shown] or lines
    bands = len(seen) <= BANDED
    along = {
        axis: [
            trace
            for label, style, runs in lines
            for trace in _traces(curve(runs, axis), style, label)[0 if bands else -1 :]
        ]
        for axis in _CURVE_AXES
    }
    curves = [curve(runs, "cost") for *_, runs in seen]
    drawn = [error for each in curves for error in (each.drawn if bands else each.mean)]
    figure = new_figure(along["cost"], x=AXIS_LABELS["cost"], y=comparison.measure.axis, height=430)
    changes = {axis: {"x": [trace.x for trace in traces]} for axis, traces in along.items()}
    return _with_menus(figure, changes, span(drawn))


def _traces(line: Curve, style: Style, label: str) -> list[go.Scatter]:
    """Return a mean with its band, or with its seeds where there are too few for one."""
    if not line.x:
        return []
    # Of a single evaluation, there is no line to see.
    mode = "lines" if len(line.x) > 1 else "markers"
    shared: dict[str, Any] = {
        "mode": mode,
        "marker": {"color": style.colour},
        **named(label, style),
    }
    unnamed: dict[str, Any] = {**shared, "name": None, "showlegend": False, "hoverinfo": "skip"}
    traces = []
    if line.has_band:
        # A logarithmic axis has no place for what an interval may reach below zero.
        floor = 0.3 * min((mean for mean in line.mean if mean > 0), default=1.0)
        traces.append(
            go.Scatter(
                x=[*line.x, *reversed(line.x)],
                y=[*line.high, *(max(low, floor) for low in reversed(line.low))],
                fill="toself",
                fillcolor=style.faded(0.13),
                line={"width": 0},
                **unnamed,
            )
        )
    elif len(line.seeds) > 1:
        traces.append(
            go.Scatter(
                x=[value for x, _ in line.seeds for value in (*x, None)],
                y=[value for _, y in line.seeds for value in (*y, None)],
                line=style.line | {"width": 0.8},
                opacity=0.6,
                **unnamed,
            )
        )
    hover = "%{fullData.name}<br>%{y:.2f} at %{x:.4~g}<extra></extra>"
    mean = go.Scatter(x=line.x, y=line.mean, line=style.line, hovertemplate=hover, **shared)
    return [*traces, mean]


def difference_plot(comparison: Comparison) -> go.Figure | None:
    """Return how far each group ended from traditional training of its cost, the lowest first.

    None where there is nothing to compare. What lies far above the rest stands at the edge, as an
    arrow with its number.
    """
    matches = sorted(against_traditional(comparison), key=lambda match: match.difference.mean)
    matches = [match for match in matches if math.isfinite(match.difference.mean)]
    if not matches:
        return None
    look, names = styles(comparison), [html.escape(match.group.label) for match in matches]
    means, halves = (
        np.array([getattr(match.difference, name) for match in matches])
        for name in ("mean", "half_width")
    )
    inside = means <= ceiling(means)
    reach = np.concatenate(
        [[0.0], means[inside], (means - halves)[inside], (means + halves)[inside]]
    )
    low, high = np.nanmin(reach), np.nanmax(reach)
    margin, inside = 0.08 * (high - low) or 1.0, means <= high
    trace = go.Scatter(
        mode="markers+text",
        y=names,
        x=np.where(inside, means, high),
        error_x={"array": np.where(inside, halves, np.nan), **BARS, "color": _GREY},
        marker={
            "size": 10,
            "color": [look[match.group.label].colour for match in matches],
            "symbol": np.where(inside, "circle", "triangle-right"),
        },
        text=[f"{mean:+.1f} " * (not shown) for mean, shown in zip(means, inside, strict=True)],
        textposition="middle left",
        customdata=[html.escape(match.words("")) for match in matches],
        hovertemplate="%{y}%{customdata}<extra></extra>",
        showlegend=False,
    )
    figure = new_figure(
        [trace],
        x=comparison.measure.step,
        y="",
        height=90 + 26 * len(matches),
    )
    figure.add_vline(0.0, line={"color": _GREY, "width": 1.5, "dash": "dash"})
    figure.update_layout(
        yaxis=ROWS, xaxis={"showgrid": True, "range": [low - margin, high + margin]}
    )
    return figure


def pareto_plot(comparison: Comparison) -> go.Figure | None:
    """Return final error against the cost of whole runs; None where no run is finished."""
    look, strategies = styles(comparison), comparison.strategies
    groups = [group for own in strategies.values() for group in own]
    if not groups:
        return None
    errors = [final_estimate(group) for group in groups]
    ends = pd.DataFrame(
        {axis: [mean_at_end(group, axis) for group in groups] for axis in _FRONT_AXES}
        | {"name": [group.name for group in groups], "error": [error.mean for error in errors]}
    )
    by_name = ends.groupby("name", sort=False)
    traces, seen = list[go.Scatter](), list[float]()
    for position, (name, own) in enumerate(by_name):
        shown = not comparison.is_crowd or any(look[groups[i].label].shown for i in own.index)
        seen += [*own["error"]] if shown else []
        traces.append(
            go.Scatter(
                mode="lines+markers",
                name=html.escape(str(name)),
                visible=True if shown else "legendonly",
                x=[*own["cost"]],
                customdata=[with_interval(errors[i]) + comparison.measure.unit for i in own.index],
                y=[*own["error"]],
                cliponaxis=False,
                line={"color": look[groups[own.index[0]].label].colour, "width": 1.5},
                marker={"size": 9, "symbol": MARKS[position % len(MARKS)]},
                hovertemplate="%{fullData.name}<br>%{customdata} at %{x:.4~g}<extra></extra>",
            )
        )
    # A front of all strategies, the hidden ones too: what beats one does so unseen.
    best, line = front(ends, "cost"), {"shape": "hv", "dash": "dot", "width": 1.5, "color": _GREY}
    places = {"x": [*best["cost"]], "y": [*best["error"]]}
    traces.append(go.Scatter(mode="lines", name="front", **places, line=line, hoverinfo="skip"))
    along: dict[Axis, dict[str, Any]] = {}
    for axis in _FRONT_AXES:
        drawn = [*(own for _, own in by_name), front(ends, axis)]
        along[axis] = {
            "x": [[*own[axis]] for own in drawn],
            "y": [[*own["error"]] for own in drawn],
        }
    figure = new_figure(
        traces, x=AXIS_LABELS["cost"], y=f"final {comparison.measure.axis}", height=420
    )
    return _with_menus(figure, along, span(seen)).update_xaxes(rangemode="normal")


def front(ends: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Return the rows that no other beats in both place and error, the cheapest first."""
    ordered = ends.sort_values([axis, "error"])
    return ordered[ordered["error"] < ordered["error"].cummin().shift(fill_value=math.inf)]


def phase_plot(comparison: Comparison) -> go.Figure | None:
    """Return where the time of each group went; None where no run is finished."""
    groups = [group for group in comparison.groups if group.runs]
    if not groups:
        return None
    traces = [
        go.Bar(
            orientation="h",
            name=html.escape(str(phase)),
            y=[html.escape(group.label) for group in groups],
            x=seconds.to_list(),
            marker={
                "color": PHASE_COLOURS.get(str(phase), "#999999"),
                "line": {"color": _GREY, "width": 0.5},
            },
            hovertemplate="%{y}<br>%{fullData.name} %{x:.3g} s<extra></extra>",
        )
        for phase, seconds in phase_table(groups).items()
    ]
    figure = new_figure(traces, x="wall seconds per run", y="", height=110 + 34 * len(groups))
    figure.update_layout(yaxis={**ROWS, "showgrid": False}, barmode="stack", bargap=0.28)
    return figure


def _with_menus(
    figure: go.Figure, along: Mapping[Axis, dict[str, Any]], shown: Span | None
) -> go.Figure:
    """Let the reader choose what a figure is drawn along, and the scale of its errors."""
    scales = _error_scales(shown)
    axes = {
        f"along {_SHORT.get(axis, axis)}": (
            change,
            {"xaxis.title.text": AXIS_LABELS[axis], "xaxis.autorange": True},
        )
        for axis, change in along.items()
    }
    menus = [menu(axes, side="left")]
    if len(scales) > 1:
        changes = {
            name: [{f"yaxis.{key}": value for key, value in scale.items()}]
            for name, scale in scales.items()
        }
        menus.append(menu(changes, side="right", method="relayout"))
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(_better(scales))
    return figure.update_layout(updatemenus=menus, margin_t=80)  # below Plotly's own bar


def _error_scales(shown: Span | None) -> dict[str, dict[str, Any]]:
    """Return the settings of an error axis by the name of its scale, the better one first."""
    if shown is None:
        return {}
    linear = {"type": "linear", "range": shown.linear, "tickvals": None, "ticktext": None}
    if not shown.positive:
        return {"linear": linear}
    log = {
        "type": "log",
        "range": [math.log10(end) for end in shown.log],
        "tickvals": _TICKS,
        "ticktext": [f"{tick:g}" for tick in _TICKS],
    }
    return {"log": log, "linear": linear} if shown.wide else {"linear": linear, "log": log}


def _better(scales: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return next(iter(scales.values()), {})
