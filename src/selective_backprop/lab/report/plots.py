"""The report's figures, as Plotly draws them, with its own legends and menus.

Plotly reads a part of HTML in its labels, so every text of a record is escaped.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from selective_backprop.lab.analysis.grouping import Comparison, RunGroup
from selective_backprop.lab.analysis.statistics import (
    AXIS_LABELS,
    Axis,
    Curve,
    at,
    curve,
    estimate,
    final_estimate,
    leaders,
    phase_seconds,
    ranking,
)
from selective_backprop.lab.report.styles import (
    PHASE_COLOURS,
    Span,
    Style,
    aside,
    phases_of,
    span,
    strategy_colours,
    styles,
)

_CURVE_AXES: tuple[Axis, ...] = ("cost", "seconds", "trained", "updates", "candidates")
_FRONT_AXES: tuple[Axis, ...] = ("cost", "seconds", "trained")
_SHORT: dict[Axis, str] = {"seconds": "wall seconds", "trained": "backward passes"}
_FRONT = "front"
_TANGLE = 6  # curves with bands that can still be followed
_LEADERS = 5  # whose curves are shown at first where there is a crowd
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
ROWS = {"automargin": True, "autorange": "reversed", "type": "category", "showgrid": True}


def new_figure(traces: Iterable[Any], *, x: str, y: str, height: int) -> go.Figure:
    """Return a figure in the looks that all share; its legend gets room below its height."""
    figure = go.Figure([*traces])
    entries = sum(trace.showlegend is not False for trace in figure.data)
    figure.update_layout(template=_LOOK, height=height + 22 * math.ceil(entries / 5))
    figure.update_layout(xaxis_title=x, yaxis_title=y, showlegend=entries > 0)
    return figure


def menu(buttons: Sequence[dict[str, Any]], *, side: str, kind: str = "dropdown") -> dict[str, Any]:
    """Return a menu above a figure, on its left or right side."""
    return {
        "buttons": [*buttons],
        "type": kind,
        "direction": "right" if kind == "buttons" else "down",
        "x": 0 if side == "left" else 1,
        "xanchor": side,
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": 8},
        "bgcolor": "rgba(128,128,128,0.12)",
        "bordercolor": _FAINT,
    }


def error_plot(comparison: Comparison) -> go.Figure:
    """Return test error as training goes on, along an axis that the reader chooses."""
    look, shown = styles(comparison.groups), shown_at_first(comparison)
    traces: list[go.Scatter] = []
    places: dict[Axis, list[Any]] = {axis: [] for axis in _CURVE_AXES}
    drawn: list[float] = []
    for group in comparison.groups:
        style = look[group.label]
        lines = [(group.label, style, group.runs)]
        for run in group.unfinished:
            label = f"{group.label}, seed {run.header.seed}, unfinished"
            lines.append((label, Style(style.colour, "dot", 1.0), (run,)))
        for label, drawn_as, runs in lines:
            curves = {axis: curve(runs, axis) for axis in _CURVE_AXES}
            if curves["cost"].x:
                drawn += curves["cost"].drawn
                visible = True if group in shown else "legendonly"
                traces += curve_traces(curves["cost"], drawn_as, label, visible)
                for axis, line in curves.items():
                    places[axis] += [trace.x for trace in curve_traces(line, drawn_as, label)]
    scales = _error_scales(span(drawn))
    figure = new_figure(traces, x=AXIS_LABELS["cost"], y="test error (%)", height=430)
    figure.update_xaxes(rangemode="tozero")
    axes = [_along(axis, {"x": x}) for axis, x in places.items()]
    _add_menus(figure, axes, scales)
    return figure


def curve_traces(
    line: Curve, style: Style, label: str, visible: bool | str = True
) -> list[go.Scatter]:
    """Return a mean with its band, or with its seeds where there are too few for one."""
    shared: dict[str, Any] = {"mode": "lines", "legendgroup": label, "visible": visible}
    unnamed: dict[str, Any] = {**shared, "showlegend": False, "hoverinfo": "skip"}
    dash = {"color": style.colour, "dash": style.dash}
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
                line={**dash, "width": 0.8},
                opacity=0.6,
                **unnamed,
            )
        )
    hover = "%{fullData.name}<br>%{y:.2f} % at %{x:.4~g}<extra></extra>"
    mean = go.Scatter(
        x=line.x,
        y=line.mean,
        name=html.escape(label),
        line={**dash, "width": style.width},
        hovertemplate=hover,
        **shared,
    )
    return [*traces, mean]


def final_plot(comparison: Comparison) -> go.Figure | None:
    """Return final errors, a row for each strategy of a crowd; None where there is none."""
    ranked = [group for group in ranking(comparison) if group.runs]
    if not comparison.is_crowd or not ranked:
        return None
    errors = [final_estimate(group) for group in ranked]
    colours = strategy_colours(group.name for group in ranked)
    trace = go.Scatter(
        mode="markers",
        y=[html.escape(group.label) for group in ranked],
        x=[error.mean for error in errors],
        error_x={"array": [e.half_width for e in errors], **bars(), "color": _GREY},
        marker={"size": 10, "color": [colours[group.name] for group in ranked]},
        hovertemplate="%{y}<br>%{x:.2f} %<extra></extra>",
        showlegend=False,
    )
    figure = new_figure([trace], x="final test error (%)", y="", height=90 + 26 * len(ranked))
    figure.update_layout(yaxis=ROWS, xaxis={"showgrid": True})
    figure.update_xaxes(_better(_error_scales(span(trace.x))))
    return figure


def pareto_plot(comparison: Comparison) -> go.Figure | None:
    """Return final error against the cost of whole runs; None where no run is finished."""
    lines = comparison.strategies
    if not lines:
        return None
    colours = strategy_colours(lines)
    ahead = {group.name for group in leaders(comparison, _LEADERS)}
    shown = [name for name in lines if name in ahead or not comparison.is_crowd]
    errors = {name: [final_estimate(group) for group in groups] for name, groups in lines.items()}
    means = [[error.mean for error in own] for own in errors.values()]
    places = {axis: _places(lines, axis) for axis in _FRONT_AXES}
    traces = [
        go.Scatter(
            mode="lines+markers",
            name=html.escape(name),
            visible=True if name in shown else "legendonly",
            x=x,
            customdata=[group.cost for group in lines[name]],
            y=[error.mean for error in own],
            cliponaxis=False,
            error_y={"array": [error.half_width for error in own], **bars()},
            line={"color": colours[name], "width": 1.5},
            marker={"size": 9},
            hovertemplate="%{fullData.name}<br>%{y:.2f} % at cost %{customdata:.4~g}"
            "<extra></extra>",
        )
        for (name, own), x in zip(errors.items(), places["cost"], strict=True)
    ]
    # A front of all strategies, the hidden ones too: what beats one does so unseen.
    fronts = {axis: front(x, means) for axis, x in places.items()}
    traces.append(
        go.Scatter(
            mode="lines",
            name=_FRONT,
            x=fronts["cost"][0],
            y=fronts["cost"][1],
            line={"shape": "hv", "dash": "dot", "width": 1.5, "color": _GREY},
            hoverinfo="skip",
        )
    )
    reach = [end for own in errors.values() for error in own for end in error.ends]
    scales = _error_scales(span([mean for own in means for mean in own], reach))
    figure = new_figure(traces, x=AXIS_LABELS["cost"], y="final test error (%)", height=420)
    figure.update_xaxes(rangemode="tozero")
    axes = [
        _along(axis, {"x": [*x, fronts[axis][0]], "y": [*means, fronts[axis][1]]})
        for axis, x in places.items()
    ]
    _add_menus(figure, axes, scales)
    return figure


def front(x: Sequence[Sequence[float]], y: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the costs and errors that nothing beats in both, the cheapest first; of equals one."""
    kept: list[tuple[float, float]] = []
    pairs = (pair for xs, ys in zip(x, y, strict=True) for pair in zip(xs, ys, strict=True))
    for cost, error in sorted(pairs):
        if not kept or error < kept[-1][1]:
            kept.append((cost, error))
    return [[cost for cost, _ in kept], [error for _, error in kept]]


def phase_plot(comparison: Comparison) -> go.Figure | None:
    """Return where the time of each group went; None where no run is finished."""
    groups = [group for group in comparison.groups if group.runs]
    if not groups:
        return None
    totals = [phase_seconds(group.runs) for group in groups]
    traces = [
        go.Bar(
            orientation="h",
            name=html.escape(phase),
            y=[html.escape(group.label) for group in groups],
            x=[total.get(phase, 0.0) for total in totals],
            marker={"color": PHASE_COLOURS.get(phase, "#999999")},
            hovertemplate="%{y}<br>%{fullData.name} %{x:.3g} s<extra></extra>",
        )
        for phase in phases_of(totals)
    ]
    figure = new_figure(traces, x="wall seconds per run", y="", height=110 + 34 * len(groups))
    figure.update_layout(yaxis={**ROWS, "showgrid": False}, barmode="stack", bargap=0.28)
    return figure


def shown_at_first(comparison: Comparison) -> Sequence[RunGroup]:
    """Return the groups whose curves are shown at first: all, where that is no tangle.

    Else the longest groups that rival each other; of a crowd, those that end lowest.
    """
    if len(comparison.groups) <= _TANGLE:
        return comparison.groups
    if comparison.is_crowd:
        return leaders(comparison, _LEADERS)
    for length in comparison.lengths:
        rivals = [group for group in comparison.groups if group.length == length]
        if len(rivals) > 1:
            return rivals
    return comparison.groups


def bars() -> dict[str, Any]:
    """Return how intervals look."""
    return {"type": "data", "thickness": 1.2, "width": 3}


def _along(axis: Axis, change: dict[str, Any]) -> dict[str, Any]:
    """Return a menu's entry that draws a figure along an axis."""
    relayout = {"xaxis.title.text": AXIS_LABELS[axis], "xaxis.autorange": True}
    label = f"along {_SHORT.get(axis, axis)}"
    return {"label": label, "method": "update", "args": [change, relayout]}


def _add_menus(
    figure: go.Figure, axes: Sequence[dict[str, Any]], scales: Mapping[str, dict[str, Any]]
) -> None:
    """Let the reader choose what a figure is drawn along, and the scale of its errors."""
    menus = [menu(axes, side="left")]
    if len(scales) > 1:
        changes = [
            {"label": name, "method": "relayout", "args": [{f"yaxis.{k}": scale[k] for k in scale}]}
            for name, scale in scales.items()
        ]
        menus.append(menu(changes, side="right", kind="buttons"))
    figure.update_yaxes(_better(scales))
    figure.update_layout(updatemenus=menus, margin_t=80)  # below Plotly's own bar


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


def _places(lines: Mapping[str, Sequence[RunGroup]], axis: Axis) -> list[list[float]]:
    """Return where each strategy's lengths stand on an axis, the cheapest first."""
    found = []
    for position, groups in enumerate(lines.values()):
        places = [estimate([at(run.points[-1], axis) for run in g.runs]).mean for g in groups]
        # Strategies of equal budgets would hide each other's intervals.
        budgeted = axis == "cost" and any(group.length.unit == "cost" for group in groups)
        found.append(aside(places, position, len(lines)) if budgeted else places)
    return found
