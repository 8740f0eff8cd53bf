"""Draw the panels of figures: curves with bands and names, error axes, and where the time went."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from selective_backprop_lab.analysis.curves import Curve
from selective_backprop_lab.report.styles import PHASE_COLOURS, Span, Style, phase_table

INK, FAINT = "#222222", "#d9d9d9"
LINE = 0.052  # height of a label, as a share of the panel's height
HALF, FULL = 4.4, 9.0  # width in inches of a panel that shares its row, and of one that does not
_HANDLE, _LETTER = 0.38, 0.056  # width in inches of a legend's handle, and of a letter
DASHES = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.5)),
    "dashdot": (0, (5, 2, 1, 2)),
    "longdash": (0, (9, 3)),
    "longdashdot": (0, (9, 3, 1, 3)),
}
SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,  # names may hold dollar signs
    "svg.hashsalt": "selective-backprop",  # the same records give the same file
    "svg.fonttype": "none",
}


def draw_curve(
    axes: Axes,
    curve: Curve,
    style: Style,
    *,
    width: float = 0.8,
    spread: bool = True,
    label: str | None = None,
) -> None:
    """Draw a mean over seeds; with `spread`, also its 95 % band or, below three seeds, each."""
    look: dict[str, Any] = {"color": style.colour, "linestyle": DASHES[style.dash]}
    axes.plot(curve.x, curve.mean, **look, linewidth=width * style.width, label=label)
    if spread and curve.has_band:
        axes.fill_between(
            curve.x, curve.low, curve.high, color=style.colour, alpha=0.13, linewidth=0
        )
    elif spread and len(curve.seeds) > 1:
        for x, y in curve.seeds:
            axes.plot(x, y, **look, linewidth=0.6, alpha=0.6)


def scale_error(axes: Axes, shown: Span | None, *, sideways: bool = False) -> None:
    """Set the y-axis (or `sideways` the x-axis) to a span of errors, logarithmic if wide."""
    if shown is None:
        return
    axis: Any = axes.xaxis if sideways else axes.yaxis
    limit = axes.set_xlim if sideways else axes.set_ylim
    if shown.wide:
        (axes.set_xscale if sideways else axes.set_yscale)("log")
        limit(*shown.log)
        narrow = shown.high < 10 * shown.low  # where few of these numbers lie
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 3, 4, 6) if narrow else (1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    else:
        limit(*shown.linear)
    axis.grid(True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def draw_phases(axes: Axes, arms: Mapping[str, pd.DataFrame], *, room: float) -> None:
    """Draw one bar per arm, from top to bottom, of the seconds that its phases took."""
    seconds, left = phase_table(arms.values()), np.zeros(len(arms))
    for phase, widths in seconds.items():
        colour = PHASE_COLOURS.get(str(phase), "#999999")
        look: dict[str, Any] = {"color": colour, "edgecolor": "#888888", "linewidth": 0.4}
        axes.barh(range(len(arms)), widths, left=left, height=0.7, label=phase, **look)
        left += widths.to_numpy()
    axes.set_yticks(range(len(arms)), [*arms])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel("wall seconds of a whole run, mean over seeds")
    entitle(axes, "Where the time went", [*seconds], room=room)


def entitle(axes: Axes, title: str, names: Sequence[str], *, room: float) -> None:
    """Write a panel's title above it and, below the title, a legend in lines of `room` inches."""
    widths = [_HANDLE + _LETTER * len(name) for name in names]
    columns = len(names) if sum(widths) <= room else max(1, int(room / max(widths)))
    lines = math.ceil(len(names) / max(1, columns))
    axes.set_title(title, loc="left", fontsize=9, pad=6 + 12 * lines)
    if names:
        axes.legend(
            ncols=columns,
            frameon=False,
            fontsize=7.5,
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            borderaxespad=0.1,
            handlelength=1,
            handletextpad=0.5,
            columnspacing=1,
        )


def label_ends(
    axes: Axes, ends: Sequence[tuple[str, Style, float, float]], *, line: float = LINE
) -> None:
    """Name each curve beside the panel, about where it ends. Set the panel's limits first."""
    to_share = axes.transData + axes.transAxes.inverted()
    ends = sorted(ends, key=lambda end: end[3])
    places = [to_share.transform((x, y)).tolist() for *_, x, y in ends]
    heights = spread([height for _, height in places], line)
    leader: dict[str, Any] = {"clip_on": False, "linewidth": 0.8, "linestyle": (0, (1, 2))}
    for (label, style, x, y), (across, up), height in zip(ends, places, heights, strict=True):
        axes.text(1.03, height, label, transform=axes.transAxes, va="center", fontsize=8)
        place: dict[str, Any] = {"transform": axes.transAxes, "color": style.colour}
        axes.plot((across, 1.02), (up, height), **place, **leader)
        axes.plot(x, y, marker="o", markersize=3.5, color=style.colour, clip_on=False)


def spread(heights: Sequence[float], line: float = LINE) -> list[float]:
    """Move sorted heights apart until no labels overlap, in the same order, inside the panel."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + line if placed else 0.0))
    # Labels that were pushed out at the top come back down, and push those below them.
    ceiling = 1.0
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - line
    return placed
