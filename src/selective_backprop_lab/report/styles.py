"""How strategies and phases look: each has the same colour in all figures.

The most frequent strategies have the colours of Okabe and Ito, which readers with common forms of
colour blindness can tell apart. Related strategies have similar hues, lengths of one strategy
differ in their dashes.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from selective_backprop_lab.analysis.comparison import arms, length, lengths
from selective_backprop_lab.analysis.queries import BASELINE, BY_SEED, counted

_GREY = "#7a7a7a"
# These strategies always have these colours; others take the remaining ones, in order of name.
_OWN = {
    BASELINE: _GREY,
    "random-backprop": "#56b4e9",
    "random-scored": "#0072b2",
    "selective-backprop": "#d55e00",
    "stale-sb": "#009e73",
    "stale-sb-spread": "#6fd3a8",
    "stale-sb-released": "#00614a",
    "predicted-sb": "#cc79a7",
    "predicted-sb-gp": "#9c3f78",
    "predicted-sb-crossing": "#f0a8d8",
    "recorded-sb": "#c8102e",
    "proxy-sb": "#ff9473",
    "diet-sb": "#9a5b2e",
    "el2n": "#7a4fd0",
    "el2n-random": "#b79df2",
    "grand": "#c94fe0",
    "kath18": "#e69f00",
    "kath18-published": "#e34f00",
    "kath18-loss": "#cfb53b",
    "kath18-loss-gated": "#a08a1f",
    "top-k": "#ff4f7b",
    "low-k": "#4a63d9",
    "rho-loss": "#00b5c4",
    "rho-loss-shared": "#006d77",
    "infobatch": "#7d8f00",
    "kakurenbo": "#a9c430",
    "easy-skip": "#2f8f2f",
    "tail-sft": "#1b7a8c",
    "reseeded": "#87ceaa",
    "oracle": "#8f7500",
    "cleaned": "#5f8dd3",
    "unique": "#3906e3",
    "auto": "#35b835",
    "auto-trim": "#0f5132",
    "auto-brief": "#4b8a08",
}
_PALETTE = ("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#0072b2", "#b8a200")
BANDED = 3  # with more curves than this, no bands are drawn, as they could not be told apart
LEADERS = 5  # number of curves to show if there are too many arms
_LOG_FROM = 4.0  # an axis is logarithmic if the highest mean error is this many times the lowest
_FAR = 4.0  # times the distance from the lowest to the third quartile; values beyond are cut off
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
# Pale, so that phases do not look like strategies. Brown is selection, blue is training. Neighbours
# also differ in lightness.
PHASE_COLOURS = {
    "prepare": "#5e4b3c",
    "load": "#dddbe0",
    "score": "#ab8d73",
    "select": "#7f644e",
    "forward": "#b2b6d2",
    "backward": "#7e84ad",
    "step": "#585d83",
    "other": "#e9e7ec",
}
PHASES = tuple(PHASE_COLOURS)  # in the order of the work


@dataclass(frozen=True)
class Style:
    """How a strategy at one length is drawn."""

    colour: str  # as #rrggbb
    dash: str  # a name in `panels.DASHES`
    width: float


@dataclass(frozen=True)
class Span:
    """The part of an error axis that is shown."""

    low: float
    high: float
    wide: bool  # wide enough for a logarithmic axis to help

    @property
    def linear(self) -> tuple[float, float]:
        """The ends of a linear axis."""
        margin = 0.06 * (self.high - self.low) or 0.1 * self.high or 1.0
        return max(0.0, self.low - margin), self.high + margin

    @property
    def log(self) -> tuple[float, float]:
        """The ends of a logarithmic axis."""
        return 0.88 * self.low, 1.08 * self.high


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
            dash=_DASHES[found.index(length(own)) % len(_DASHES)],
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
    order = [*PHASES, *sorted(set(totals) - set(PHASES))]
    return totals[[phase for phase in order if phase in totals and totals[phase].any()]]


def strategy_colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each strategy."""
    unique = sorted(set(names))
    colours = {name: _OWN[name] for name in unique if name in _OWN}
    free = [colour for colour in _PALETTE if colour not in colours.values()] or list(_PALETTE)
    others = [name for name in unique if name not in _OWN]
    return colours | {name: free[i % len(free)] for i, name in enumerate(others)}
