"""Figures 8 and 9: how sure and how right the net is of easy and of hard examples."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes

from reproductions.jiang2019.drawing import caption, sheet, under
from reproductions.jiang2019.items import Filled, Found, Presentation
from reproductions.jiang2019.judging import Finding, above_zero, below_zero, paired
from reproductions.jiang2019.text import Grid
from reproductions.jiang2019.watching import Pick, draw_series, follow, looks, over_training
from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.analysis.statistics import Estimate, estimate
from selective_backprop.lab.analysis.tables import with_interval
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.styles import Style

_PROBE = "LossBands("
# From the lowest losses to the highest: Okabe and Ito's, in the order of a rainbow.
_COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00")
_ARMS = {"sb": "solid", "traditional": "dash"}
_WORDS = (
    "At most 4,000 test examples, in five bands of equally many by their loss at that moment. "
    "Means over seeds; their intervals stand in the table."
)
Judge = Callable[[Filled], Iterator[Finding]]


def presenter(key: str, what: str, judge: Judge) -> Callable[[Found], Presentation]:
    """Return what draws one measure of the bands, in per cent, and judges every panel."""

    def present(found: Found) -> Presentation:
        with sheet(1, len(found.panels), height=3.2) as (figure, grid):
            for panel, filled in zip(grid[0], found.panels, strict=True):
                _draw(panel, filled, key)
                title = f"{filled.panel.title}: SB solid, Traditional dashed"
                panel.set_title(title, loc="left", fontsize=9)
            grid[0][0].set_ylabel(f"{what} (%)")
            under(figure, f"{_WORDS} {caption(found)}")
        return Presentation(
            figure=figure,
            tables=tuple(_table(filled, key, what) for filled in found.panels),
            findings=tuple(finding for filled in found.panels for finding in judge(filled)),
        )

    return present


def sure(filled: Filled) -> Iterator[Finding]:
    """Judge figure 8: confidence moves from the easy examples to the hard ones."""
    for band, claim, judged in (
        (0, "SB is less sure of the easiest fifth than Traditional", below_zero),
        (-1, "SB is surer of the hardest fifth than Traditional", above_zero),
    ):
        found = _between(filled, _pick("confidence", band))
        if found is not None:
            words = f"{filled.panel.title}: {claim} (implied)"
            yield judged(words, found, "points of target confidence over training")


def right(filled: Filled) -> Iterator[Finding]:
    """Judge figure 9: the harder examples are learned sooner."""

    def pick(seen: Mapping[str, Any]) -> float:
        return sum(seen["accuracy"][-2:]) / 2

    found = _between(filled, pick)
    if found is not None:
        claim = f"{filled.panel.title}: SB is right more often on the harder two fifths (implied)"
        yield above_zero(claim, found, "points of accuracy over training")


def _between(filled: Filled, pick: Pick) -> Estimate | None:
    ours, base = filled.find("sb"), filled.find("traditional")
    if ours is None or base is None:
        return None
    mean = over_training(_PROBE, pick)
    return paired(ours, base, lambda one, two: mean(one) - mean(two))


def _pick(key: str, band: int) -> Pick:
    return lambda seen: seen[key][band]


def _count(run: Run) -> int:
    return len(looks(run, _PROBE)[0].seen["accuracy"])


def _draw(panel: Axes, filled: Filled, key: str) -> None:
    shown = []
    for arm_key, dash in _ARMS.items():
        arm = filled.find(arm_key)
        if arm is None:
            continue
        for band, name in enumerate(_names(_count(arm.runs[0]))):
            style = Style(_COLOURS[band % len(_COLOURS)], dash, 2.0)
            label = name if dash == "solid" else ""
            shown.append(follow(label, style, arm, _PROBE, _pick(key, band)))
    top = max(value.mean for each in shown for value in each.y)
    draw_series(panel, shown, limits=(-0.02 * top, min(102.0, 1.1 * top)))


def _names(count: int) -> list[str]:
    edges = [round(100 * place / count) for place in range(count + 1)]
    names = [f"{low}–{high} %" for low, high in pairwise(edges)]
    return [f"lowest {edges[1]} %", *names[1:-1], f"highest {edges[1]} %"]


def _table(filled: Filled, key: str, what: str) -> Grid:
    rows = []
    names = _names(_count(filled.pairs[0][1].runs[0]))
    for entry, arm in filled.pairs:
        ends = (
            with_interval(estimate(_at_end(arm, _pick(key, band)))) for band in range(len(names))
        )
        rows.append((entry.label, *ends))
    head = ("strategy", *(f"loss {name}" for name in names))
    return Grid(f"{filled.panel.title}: {what} at the end, %", head, tuple(rows))


def _at_end(arm: Arm, pick: Pick) -> list[float]:
    return [pick(looks(run, _PROBE)[-1].seen) for run in arm.runs]
