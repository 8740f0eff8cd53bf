"""The panels of figures: the colours of strategies and phases, curves, axes, and phases as bars."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from selective_backprop_lab.analysis.comparison import arms, length, lengths
from selective_backprop_lab.analysis.estimates import Curve
from selective_backprop_lab.analysis.queries import BASELINE, BY_SEED, counted

# Related strategies have similar hues; those not named here take what remains, in order of name.
# The most frequent have Okabe and Ito's colours, which most colour-blind readers can tell apart.
_OWN = {
    BASELINE: "#7a7a7a", "random-backprop": "#56b4e9", "random-scored": "#0072b2",
    "selective-backprop": "#d55e00", "stale-sb": "#009e73", "stale-sb-spread": "#6fd3a8",
    "stale-sb-released": "#00614a", "predicted-sb": "#cc79a7", "predicted-sb-gp": "#9c3f78",
    "predicted-sb-crossing": "#f0a8d8",
    "recorded-sb": "#c8102e", "proxy-sb": "#ff9473", "diet-sb": "#9a5b2e", "el2n": "#7a4fd0",
    "el2n-random": "#b79df2", "grand": "#c94fe0", "kath18": "#e69f00",
    "kath18-published": "#e34f00", "kath18-loss": "#cfb53b", "kath18-loss-gated": "#a08a1f",
    "top-k": "#ff4f7b", "low-k": "#4a63d9", "rho-loss": "#00b5c4", "rho-loss-shared": "#006d77",
    "infobatch": "#7d8f00", "kakurenbo": "#a9c430", "easy-skip": "#2f8f2f", "tail-sft": "#1b7a8c",
    "reseeded": "#87ceaa", "oracle": "#8f7500", "cleaned": "#5f8dd3", "unique": "#3906e3",
    "auto": "#35b835", "auto-trim": "#0f5132", "auto-brief": "#4b8a08",
}  # fmt: skip
_PALETTE = ("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#0072b2", "#b8a200")
BANDED = 3  # with more curves than this, no bands are drawn, as they could not be told apart
LEADERS = 5  # number of curves to show if there are too many arms
_LOG_FROM = 4.0  # an axis is logarithmic if the highest mean error is this many times the lowest
_FAR = 4.0  # times the distance from the lowest to the third quartile; values beyond are cut off
PHASE_COLOURS = {  # in the order of the work; brown is selection, blue is training
    "prepare": "#5e4b3c", "load": "#dddbe0", "score": "#ab8d73", "select": "#7f644e",
    "forward": "#b2b6d2", "backward": "#7e84ad", "step": "#585d83", "other": "#e9e7ec",
}  # fmt: skip


@dataclass(frozen=True)
class Style:
    """How a strategy at one length is drawn."""

    colour: str  # as #rrggbb
    dash: str  # a name in `DASHES`
    width: float


class Span(NamedTuple):
    """The part of an error axis that is shown."""

    low: float
    high: float
    wide: bool  # wide enough for a logarithmic axis to help


def span(means: Iterable[float], reach: Iterable[float] = ()) -> Span | None:
    """Return the part of an error axis that shows all means, and the interval ends in `reach`."""
    seen = [mean for mean in means if math.isfinite(mean)]
    if not seen:
        return None
    lowest, highest = min(seen), max(seen)
    ends = [max(end, 0.5 * lowest) for end in reach]
    return Span(
        low=min([lowest, *ends]),
        high=max([highest, *ends]),
        wide=lowest > 0 and highest / lowest > _LOG_FROM,
    )


def ceiling(values: Iterable[float]) -> float:
    """Return the highest value that an axis has to show, without a few far above the rest."""
    known = np.array([value for value in values if math.isfinite(value)])
    if not len(known):
        return math.nan
    lowest, upper = np.quantile(known, [0.0, 0.75])
    far = known > lowest + _FAR * (upper - lowest)
    return float(known.max() if upper == lowest else known[~far].max())


def styles(comparison: pd.DataFrame) -> dict[str, Style]:
    """Return a style for each label: colour by arm, dashes by length."""
    found, colours = lengths(comparison), strategy_colours(comparison.arm)
    return {
        label: Style(
            colour=colours[own.arm.iloc[0]],
            dash=[*DASHES][found.index(length(own)) % len(DASHES)],
            width=2.4 if own.arm.iloc[0] == BASELINE else 2.0,
        )
        for label, own in arms(comparison).items()
    }


def phase_table(each: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the mean seconds of each phase over an arm's timed runs; a row for each arm."""
    rows = []
    for own in map(counted, each):
        timed = own[own.seconds.notna()]
        ends = timed.drop_duplicates(BY_SEED, keep="last").phases
        rows.append(pd.DataFrame([*ends]).fillna(0.0).mean())
    totals = pd.DataFrame(rows).fillna(0.0)
    order = [*PHASE_COLOURS, *sorted(set(totals) - set(PHASE_COLOURS))]
    return totals[[phase for phase in order if phase in totals and totals[phase].any()]]


def strategy_colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each strategy."""
    unique = sorted(set(names))
    colours = {name: _OWN[name] for name in unique if name in _OWN}
    free = [colour for colour in _PALETTE if colour not in colours.values()] or list(_PALETTE)
    others = [name for name in unique if name not in _OWN]
    return colours | {name: free[i % len(free)] for i, name in enumerate(others)}


INK, FAINT = "#222222", "#d9d9d9"
LINE = 0.052  # height of a label, as a share of the panel's height
ALONE = 5.2  # width in inches of a panel that has its row for itself, also on a phone
HALF = 4.4  # width in inches of a panel that shares its row
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
        limit(0.88 * shown.low, 1.08 * shown.high)
        narrow = shown.high < 10 * shown.low  # where few of these numbers lie
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 3, 4, 6) if narrow else (1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    else:
        margin = 0.06 * (shown.high - shown.low) or 0.1 * shown.high or 1.0
        limit(max(0.0, shown.low - margin), shown.high + margin)
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
