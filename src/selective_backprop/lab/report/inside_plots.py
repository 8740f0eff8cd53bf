"""The figures of what went on inside the training: the spread of losses, classes, single lives."""

import html
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from selective_backprop.lab.analysis.statistics import Estimate
from selective_backprop.lab.report.inside import (
    Inside,
    Spread,
    class_shares,
    loss_spread,
    widest_classes,
)
from selective_backprop.lab.report.plots import Entry, Plot, base_layout, number
from selective_backprop.lab.report.styles import Style

CLASSES = 20  # rows that a reader still compares
_LEAST = 1e-5  # a loss below it is drawn there: a logarithmic axis has no zero
_MARKS = ("circle", "diamond", "square", "triangle-up", "cross", "x")


def spread_plot(
    insides: Sequence[Inside], look: dict[str, Style], shown: frozenset[str]
) -> Plot | None:
    """Return the distribution of losses over the examples, at a moment that the reader chooses.

    Args:
        insides: arms with their histories.
        look: a style for each arm.
        shown: labels of the arms that are shown at first.
    """
    spreads = [(inside, loss_spread(inside.histories)) for inside in insides]
    spreads = [(inside, spread) for inside, spread in spreads if len(spread.progress)]
    if not spreads:
        return None
    grid = max((spread.progress for _, spread in spreads), key=len)
    steps = [
        {
            "name": f"{share:.0%} of the run".replace("%", " %"),
            "x": [_losses_at(spread, share) for _, spread in spreads],
        }
        for share in grid.tolist()
    ]
    layout = base_layout(x_title="loss", y_title="examples with at most this loss (%)")
    # The lowest loss of all is often far below the rest.
    most = [spread.loss[:, 1:] for _, spread in spreads]
    finite = np.concatenate([losses[np.isfinite(losses)] for losses in most])
    low, high = (max(_LEAST, float(end(finite, initial=1.0))) for end in (np.min, np.max))
    layout["xaxis"] |= {
        "type": "log",
        "range": [math.log10(low) - 0.05, math.log10(max(high, 2 * low)) + 0.05],
        "showgrid": True,
        "dtick": 1,
        "tickformat": "~g",
    }
    layout["yaxis"] |= {"range": [0, 101], "ticksuffix": ""}
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": html.escape(inside.arm.label),
            "legendgroup": inside.arm.label,
            "visible": inside.arm.label in shown,
            "x": x,
            "y": (100 * spread.level).tolist(),
            "line": _line(look[inside.arm.label]),
            "hovertemplate": "%{fullData.name}<br>%{y:.3g} % of the examples at most %{x:.3~g}"
            "<extra></extra>",
        }
        for (inside, spread), x in zip(spreads, steps[-1]["x"], strict=True)
    ]
    return Plot(
        name="spread",
        title="How losses are spread over the examples",
        data=data,
        layout=layout,
        height=400,
        legend=_legend([inside for inside, _ in spreads], look, shown),
        steps=steps,
    )


def class_plot(
    insides: Sequence[Inside], look: dict[str, Style], shown: frozenset[str]
) -> Plot | None:
    """Return how much of each class was trained on; None where histories name no classes."""
    names = insides[0].histories[0].class_name if insides else ()
    if not names:
        return None
    shares = [class_shares(inside.histories) for inside in insides]
    rows = widest_classes(shares, CLASSES)
    labels = [html.escape(names[row]) for row in rows]
    several = any(len(inside.runs) > 1 for inside in insides)
    data = []
    for position, (inside, share) in enumerate(zip(insides, shares, strict=True)):
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "markers",
            "name": html.escape(inside.arm.label),
            "legendgroup": inside.arm.label,
            "visible": inside.arm.label in shown,
            "y": labels,
            "x": [number(share[row].mean) for row in rows],
            "marker": {
                "size": 10,
                "color": look[inside.arm.label].colour,
                "symbol": _MARKS[position % len(_MARKS)],
            },
            "hovertemplate": "%{fullData.name}<br>%{y}: %{x:.3g} %<extra></extra>",
        }
        if several:
            trace["error_x"] = {
                "type": "data",
                "symmetric": False,
                "array": [number(_within(share[row], 100.0 - share[row].mean)) for row in rows],
                "arrayminus": [number(_within(share[row], share[row].mean)) for row in rows],
                "thickness": 1.2,
                "width": 3,
            }
        data.append(trace)
    layout = base_layout(x_title="trained on, of 100 chances", y_title="")
    layout["xaxis"] |= {"showgrid": True}
    layout["yaxis"] = {
        "automargin": True,
        "autorange": "reversed",
        "type": "category",
        "showgrid": True,
        "ticks": "",
    }
    return Plot(
        name="classes",
        title="How much of each class was trained on",
        data=data,
        layout=layout,
        height=110 + 30 * len(rows),
        legend=[replace(entry, dash=None) for entry in _legend(insides, look, shown)],
    )


def _within(share: Estimate, room: float) -> float:
    """Return the half-width of an interval, cut where there is nothing: below 0 and above 100."""
    return min(share.half_width, max(0.0, room))


def life_plot(insides: Sequence[Inside], look: dict[str, Style], shown: frozenset[str]) -> Plot:
    """Return the empty figure of one example's life, which the page's script fills."""
    layout = base_layout(x_title="epoch", y_title="loss")
    layout["xaxis"] |= {"rangemode": "normal"}
    layout["yaxis"] |= {"rangemode": "tozero"}
    return Plot(
        name="life",
        title="The life of one example",
        data=[],
        layout=layout,
        height=320,
        legend=_legend(insides, look, shown),
    )


def _losses_at(spread: Spread, share: float) -> list[float | None]:
    """Return the quantiles at the evaluation that is nearest to a share of the run."""
    row = spread.loss[int(np.abs(spread.progress - share).argmin())]
    return [
        float(f"{max(loss, _LEAST):.4g}") if math.isfinite(loss) else None for loss in row.tolist()
    ]


def _line(style: Style) -> dict[str, Any]:
    return {"color": style.colour, "dash": style.dash, "width": style.width}


def _legend(
    insides: Sequence[Inside], look: dict[str, Style], shown: frozenset[str]
) -> list[Entry]:
    return [
        Entry(
            inside.arm.label,
            look[inside.arm.label].colour,
            look[inside.arm.label].dash,
            inside.arm.label in shown,
        )
        for inside in insides
    ]
