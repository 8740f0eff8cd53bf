"""The figures of what went on inside the training: the spread of losses, classes, single lives."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.report.examples import (
    Kept,
    class_shares,
    examined,
    faces,
    labels_of,
    loss_spread,
    widest_classes,
)
from selective_backprop.lab.report.plots import BARS, ROWS, menu, named, new_figure
from selective_backprop.lab.report.styles import Style

CLASSES = 20  # rows that a reader still compares
_LIVES = 64  # that a page holds
_LEAST = 1e-5  # a loss below it is drawn there: a logarithmic axis has no zero
_MARKS = ("circle", "diamond", "square", "triangle-up", "cross", "x")


def spread_plot(kept: Kept, look: Mapping[str, Style]) -> go.Figure | None:
    """Return how losses are spread over the examples, at a moment that the reader chooses."""
    spreads = {label: loss_spread(own.values()) for label, own in kept.items()}
    spreads = {label: spread for label, spread in spreads.items() if len(spread[1])}
    if not spreads:
        return None
    moments = max((progress for progress, _ in spreads.values()), key=len)
    losses = {
        f"{100 * share:.0f} % of the run": [
            _short(np.maximum(loss[np.abs(progress - share).argmin()], _LEAST))
            for progress, loss in spreads.values()
        ]
        for share in moments.tolist()
    }
    *_, last = losses.values()
    traces = [
        go.Scatter(
            mode="lines",
            **named(label, look[label]),
            x=x,
            y=100 * next(iter(kept[label].values())).cdf_level.astype(float),
            line=look[label].line,
            hovertemplate="%{fullData.name}<br>%{y:.3g} % of the examples at most %{x:.3~g}"
            "<extra></extra>",
        )
        for label, x in zip(spreads, last, strict=True)
    ]
    # The lowest loss of all is often far below the rest.
    known = np.concatenate([loss[:, 1:].ravel() for _, loss in spreads.values()])
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
    return figure.update_layout(sliders=[slider], margin_t=90)


def class_plot(kept: Kept, look: Mapping[str, Style]) -> go.Figure | None:
    """Return how much of each class was trained on; None where histories name no classes."""
    names = examined(kept)[0][-1].class_name if kept else ()
    if not names:
        return None
    shares = [class_shares(own.values()) for own in kept.values()]
    rows = widest_classes(shares, CLASSES)
    traces = []
    for position, (label, share) in enumerate(zip(kept, shares, strict=True)):
        means, halves = (
            np.array([getattr(share[row], name) for row in rows]) for name in ("mean", "half_width")
        )
        symbol = _MARKS[position % len(_MARKS)]
        traces.append(
            go.Scatter(
                mode="markers",
                **named(label, look[label]),
                y=[html.escape(names[row]) for row in rows],
                x=means,
                marker={"size": 10, "color": look[label].colour, "symbol": symbol},
                # An interval is cut where there is nothing: below 0 and above 100.
                error_x={
                    **BARS,
                    "symmetric": False,
                    "array": np.minimum(halves, 100.0 - means),
                    "arrayminus": np.minimum(halves, means),
                },
                hovertemplate="%{fullData.name}<br>%{y}: %{x:.3g} %<extra></extra>",
            )
        )
    x, height = "trained on, of 100 chances", 110 + 30 * len(rows)
    figure = new_figure(traces, x=x, y="", height=height)
    return figure.update_layout(xaxis={"showgrid": True, "rangemode": "tozero"}, yaxis=ROWS)


def life_plot(kept: Kept, look: Mapping[str, Style]) -> go.Figure | None:
    """Return what models made of one example, which the reader chooses, epoch by epoch.

    None where no run followed an example.
    """
    runs = examined(kept)
    histories = [history for *_, history in runs]
    indices = followed(histories)[:_LIVES] if runs else []
    if not indices:
        return None
    seeds = list(dict.fromkeys(seed for _, seed, _ in runs))
    lives = {index: [_life(history, index) for history in histories] for index in indices}
    traces = []
    for axis, measure in (("y", "loss"), ("y2", "probability")):
        for (label, seed, history), life in zip(runs, lives[indices[0]], strict=True):
            style = look[label]
            own_seed = {} if seed == seeds[0] else {"visible": False}
            traces.append(
                go.Scatter(
                    mode="lines+markers",
                    **named(label, style) | own_seed,
                    showlegend=axis == "y",
                    yaxis=axis,
                    x=history.life_epoch + 1,
                    y=life[measure],
                    text=life["text"],
                    connectgaps=True,
                    line=style.line | {"width": 1.5},
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
    images, texts = faces(histories, indices)
    examples = {}
    for index, own in lives.items():
        change = {
            "y": [life[measure] for measure in ("loss", "probability") for life in own],
            "text": [life["text"] for life in own] * 2,
            "marker.symbol": [life["symbol"] for life in own] * 2,
        }
        words = f"{_described(index, histories[0])} {html.escape(texts.get(index, '')[:40])}"
        examples[words] = (change, {"images[0].source": images.get(index)})
    of_seeds = {
        f"seed {each}": [{"visible": [seed == each for _, seed, _ in runs] * 2}] for each in seeds
    }
    menus = [menu(examples, side="left"), menu(of_seeds, side="right")]
    figure.update_layout(updatemenus=menus[: 1 + (len(seeds) > 1)], margin_t=110)
    if images:
        place = {"x": 0.5, "y": 1.03, "xanchor": "center", "yanchor": "bottom"}
        figure.add_layout_image(source=images.get(indices[0]), **place, sizex=0.2, sizey=0.24)
    return figure


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


def _short(values: Any) -> list[float]:
    """Return numbers of four digits, which make a smaller page."""
    return [float(f"{value:.4g}") for value in values.tolist()]
