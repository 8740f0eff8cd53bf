"""The figures of what went on inside the training: the spread of losses, classes, single lives."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.report.examples import (
    GroupHistories,
    class_shares,
    examined,
    faces,
    labels_of,
    loss_spread,
    widest_classes,
)
from selective_backprop.lab.report.plots import ROWS, bars, menu, new_figure
from selective_backprop.lab.report.styles import Style

CLASSES = 20  # rows that a reader still compares
_LIVES = 64  # that a page holds
_LEAST = 1e-5  # a loss below it is drawn there: a logarithmic axis has no zero
_MARKS = ("circle", "diamond", "square", "triangle-up", "cross", "x")


def spread_plot(
    kept: Sequence[GroupHistories], look: Mapping[str, Style], shown: frozenset[str]
) -> go.Figure | None:
    """Return how losses are spread over the examples, at a moment that the reader chooses."""
    spreads = [(own, *loss_spread(own.histories)) for own in kept]
    spreads = [spread for spread in spreads if len(spread[1])]
    if not spreads:
        return None
    moments = max((progress for _, progress, _ in spreads), key=len)
    losses = {
        f"{100 * share:.0f} % of the run": [
            _short(np.maximum(loss[np.abs(progress - share).argmin()], _LEAST))
            for _, progress, loss in spreads
        ]
        for share in moments.tolist()
    }
    *_, last = losses.values()
    traces = [
        go.Scatter(
            mode="lines",
            **_named(own, shown),
            x=x,
            y=100 * own.histories[0].cdf_level.astype(float),
            line=_line(look[own.group.label]),
            hovertemplate="%{fullData.name}<br>%{y:.3g} % of the examples at most %{x:.3~g}"
            "<extra></extra>",
        )
        for (own, *_), x in zip(spreads, last, strict=True)
    ]
    # The lowest loss of all is often far below the rest.
    known = np.concatenate([loss[:, 1:].ravel() for *_, loss in spreads])
    finite = known[np.isfinite(known)]
    low, high = (max(_LEAST, float(end(finite, initial=1.0))) for end in (np.min, np.max))
    y = "examples with at most this loss (%)"
    figure = new_figure(traces, x="loss", y=y, height=420)
    figure.update_xaxes(
        type="log",
        range=[math.log10(low) - 0.05, math.log10(max(high, 2 * low)) + 0.05],
        showgrid=True,
        dtick=1,
        tickformat="~g",
    )
    figure.update_yaxes(range=[0, 101])
    slider = {
        "active": len(losses) - 1,
        "currentvalue": {"prefix": "after ", "font": {"size": 13}},
        "steps": [
            {"label": moment, "method": "restyle", "args": [{"x": x}]}
            for moment, x in losses.items()
        ],
        "font": {"size": 1, "color": "rgba(0,0,0,0)"},  # the moments' names on the slider itself
        **{"y": 1, "yanchor": "bottom", "pad": {"b": 30}, "ticklen": 0, "minorticklen": 0},
    }
    figure.update_layout(sliders=[slider], margin_t=90)
    return figure


def class_plot(
    kept: Sequence[GroupHistories], look: Mapping[str, Style], shown: frozenset[str]
) -> go.Figure | None:
    """Return how much of each class was trained on; None where histories name no classes."""
    names = kept[0].histories[0].class_name
    if not names:
        return None
    shares = [class_shares(own.histories) for own in kept]
    rows = widest_classes(shares, CLASSES)
    traces = [
        go.Scatter(
            mode="markers",
            **_named(own, shown),
            y=[html.escape(names[row]) for row in rows],
            x=[share[row].mean for row in rows],
            marker={
                "size": 10,
                "color": look[own.group.label].colour,
                "symbol": _MARKS[position % len(_MARKS)],
            },
            # An interval is cut where there is nothing: below 0 and above 100.
            error_x={
                **bars(),
                "symmetric": False,
                "array": [_cut(share[row].half_width, 100.0 - share[row].mean) for row in rows],
                "arrayminus": [_cut(share[row].half_width, share[row].mean) for row in rows],
            },
            hovertemplate="%{fullData.name}<br>%{y}: %{x:.3g} %<extra></extra>",
        )
        for position, (own, share) in enumerate(zip(kept, shares, strict=True))
    ]
    x, height = "trained on, of 100 chances", 110 + 30 * len(rows)
    figure = new_figure(traces, x=x, y="", height=height)
    figure.update_layout(xaxis={"showgrid": True, "rangemode": "tozero"}, yaxis=ROWS)
    return figure


def life_plot(
    kept: Sequence[GroupHistories], look: Mapping[str, Style], shown: frozenset[str]
) -> go.Figure | None:
    """Return what models made of one example, which the reader chooses, epoch by epoch.

    None where no run followed an example.
    """
    runs = [(own, run, history) for own, run, history in examined(kept)]
    indices = followed([history for _, _, history in runs])[:_LIVES]
    if not indices:
        return None
    seeds = list(dict.fromkeys(run.header.seed for _, run, _ in runs))
    lives = {index: [_life(history, index) for _, _, history in runs] for index in indices}
    traces = []
    for axis, measure in (("y", "loss"), ("y2", "probability")):
        for (own, run, history), life in zip(runs, lives[indices[0]], strict=True):
            named = _named(own, shown)
            named["visible"] = named["visible"] if run.header.seed == seeds[0] else False
            style = look[own.group.label]
            traces.append(
                go.Scatter(
                    mode="lines+markers",
                    **named,
                    showlegend=axis == "y",
                    yaxis=axis,
                    x=history.life_epoch + 1,
                    y=life[measure],
                    text=life["text"],
                    connectgaps=True,
                    line=_line(style) | {"width": 1.5},
                    marker={"size": 9, "color": style.colour, "symbol": life["symbol"]},
                    hovertemplate="%{fullData.name}, epoch %{x}<br>%{y:.3g}, %{text}"
                    "<extra></extra>",
                )
            )
    figure = new_figure(traces, x="epoch", y="loss", height=470)
    figure.update_layout(
        xaxis={"anchor": "y2"},
        yaxis={"domain": [0.54, 1], "rangemode": "tozero"},
        yaxis2={"domain": [0, 0.46], "title": "its label's probability (%)", "range": [0, 104]},
    )
    images, texts = faces([history for _, _, history in runs], indices)
    examples = [
        _entry(
            f"{_described(index, runs[0][2])} {html.escape(texts.get(index, '')[:40])}",
            {
                "y": [life[measure] for measure in ("loss", "probability") for life in own],
                "text": [life["text"] for life in own] * 2,
                "marker.symbol": [life["symbol"] for life in own] * 2,
            },
            {"images[0].source": images.get(index)},
        )
        for index, own in lives.items()
    ]
    of_seeds = [
        _entry(f"seed {seed}", {"visible": [run.header.seed == seed for _, run, _ in runs] * 2})
        for seed in seeds
    ]
    menus = [menu(examples, side="left"), menu(of_seeds, side="right")]
    figure.update_layout(updatemenus=menus[: 1 + (len(seeds) > 1)], margin_t=110)
    if images:
        place = {"x": 0.5, "y": 1.03, "xanchor": "center", "yanchor": "bottom"}
        figure.add_layout_image(source=images.get(indices[0]), **place, sizex=0.2, sizey=0.24)
    return figure


def _entry(label: str, *changes: dict[str, Any]) -> dict[str, Any]:
    """Return a menu's entry that changes traces, and the layout."""
    return {"label": label, "method": "update", "args": [*changes]}


def followed(histories: Sequence[ExampleHistory]) -> list[int]:
    """Return the examples whose lives were kept: first those of all runs, the hardest first."""
    kept = np.concatenate([history.life_index for history in histories])
    indices, counts = np.unique(kept, return_counts=True)
    hardness = np.nan_to_num(np.max([history.loss_mean[indices] for history in histories], axis=0))
    return indices[np.lexsort((-hardness, -counts))].tolist()


def _life(history: ExampleHistory, index: int) -> dict[str, Any]:
    """Return one example's life in one run; empty where it was not followed."""
    rows = np.flatnonzero(history.life_index == index)
    if not len(rows):
        return {"loss": [], "probability": [], "text": [], "symbol": "circle"}
    row = rows[0]
    selected = history.life_selected[row].tolist()
    words = {0: "scored, not trained on", 1: "trained on"}
    return {
        "loss": _short(history.life_loss[row]),
        "probability": _short(100 * history.life_probability[row]),
        "text": [words.get(count, f"trained on {count} times") for count in selected],
        "symbol": ["circle" if count else "circle-open" for count in selected],
    }


def _described(index: int, history: ExampleHistory) -> str:
    label, clean = labels_of(history, index)
    was = f", flipped, was {clean}" if clean else ""
    return html.escape(f"example {index}, label {label}{was}")


def _named(own: GroupHistories, shown: frozenset[str]) -> dict[str, Any]:
    label = own.group.label
    visible = True if label in shown else "legendonly"
    return {"name": html.escape(label), "legendgroup": label, "visible": visible}


def _short(values: Any) -> list[float]:
    """Return numbers of four digits, which make a smaller page."""
    return [float(f"{value:.4g}") for value in values.tolist()]


def _cut(half_width: float, room: float) -> float:
    return min(half_width, max(0.0, room))


def _line(style: Style) -> dict[str, Any]:
    return {"color": style.colour, "dash": style.dash, "width": style.width}
