"""How every arm and every phase looks: the same colour in each figure, whoever else is in it.

The colours are Okabe and Ito's, which readers with any common colour blindness can tell apart, with
a mid grey for traditional training: it is what the rest is read against, and grey is legible on
white and on black. Budgets of one arm share its colour and differ in their dashes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from selective_backprop.lab.comparison import BASELINE, Arm

_GREY = "#7a7a7a"
# Named arms keep their colour for good; others take what is left, in order of name.
_OWN = {
    BASELINE: _GREY,
    "random-backprop": "#56b4e9",
    "random-scored": "#0072b2",
    "selective-backprop": "#d55e00",
    "stale-sb": "#009e73",
    "predicted-sb": "#cc79a7",
    "kath18": "#e69f00",
}
_PALETTE = ("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#0072b2", "#b8a200")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
# The same as SVG writes them, for legends.
SVG_DASHES = dict(zip(_DASHES, ("none", "9 6", "3 4", "9 4 3 4", "15 5", "15 4 3 4"), strict=True))
PHASES = ("load", "score", "select", "forward", "backward", "step", "other")
# Tol's "bright" palette, in another family than the arms', so that a phase is not taken for an arm.
PHASE_COLOURS = {
    "load": "#bbbbbb",
    "score": "#ee6677",
    "select": "#ccbb44",
    "forward": "#66ccee",
    "backward": "#4477aa",
    "step": "#228833",
    "other": "#777777",
}


@dataclass(frozen=True)
class Style:
    """How an arm at one length is drawn."""

    colour: str  # as #rrggbb
    dash: str  # in Plotly's words
    width: float

    def faded(self, opacity: float) -> str:
        """Return the colour as CSS writes it, seen through."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity})"


def styles(arms: Sequence[Arm]) -> dict[str, Style]:
    """Return a style for the label of each arm: colour by name, dashes by length."""
    lengths = list(dict.fromkeys(arm.length for arm in arms))
    colours = _colours(arm.name for arm in arms)
    return {
        arm.label: Style(
            colour=colours[arm.name],
            dash=_DASHES[lengths.index(arm.length) % len(_DASHES)],
            width=2.4 if arm.is_baseline else 2.0,
        )
        for arm in arms
    }


def phases_of(totals: Iterable[dict[str, float]]) -> tuple[str, ...]:
    """Return the phases that occur: the known ones in order of the work, then any others."""
    found = {phase for total in totals for phase in total}
    return (*(p for p in PHASES if p in found), *sorted(found - set(PHASES)))


def _colours(names: Iterable[str]) -> dict[str, str]:
    unique = sorted(set(names))
    colours = {name: _OWN[name] for name in unique if name in _OWN}
    free = [colour for colour in _PALETTE if colour not in colours.values()] or list(_PALETTE)
    others = [name for name in unique if name not in _OWN]
    return colours | {name: free[i % len(free)] for i, name in enumerate(others)}
