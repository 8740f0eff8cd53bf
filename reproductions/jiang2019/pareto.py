"""Figure 14: which strategies make up the front of time against error."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from reproductions.jiang2019.clock import timed
from reproductions.jiang2019.drawing import AXIS_LABELS, caption, sheet, under
from reproductions.jiang2019.items import Filled, Found, Presentation
from reproductions.jiang2019.judging import Finding, above_zero
from reproductions.jiang2019.text import Grid
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    Axis,
    Estimate,
    at,
    curve,
    estimate,
)
from selective_backprop.lab.analysis.tables import with_interval
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import scale_error
from selective_backprop.lab.report.styles import span, strategy_colours

FAMILIES = {"traditional": "Traditional", "sb": "SB", "stale": "Stale-SB", "kath18": "Kath18"}
_ARMS = {
    "traditional": "traditional",
    "sb": "selective-backprop",
    "stale": "stale-sb",
    "kath18": "kath18",
}
_MARKS = {"traditional": "s", "sb": "o", "stale": "^", "kath18": "D"}
_AXES: tuple[Axis, ...] = ("seconds", "cost")


@dataclass(frozen=True)
class Place:
    """An error that a configuration of a strategy had at a time."""

    family: str
    time: float
    error: float


def present(found: Found) -> Presentation:
    """Draw all points and the front, and count each strategy's share of it, seed by seed."""
    axes = timed(_AXES, found.runs)
    with sheet(len(axes), len(found.panels)) as (figure, grid):
        for row, axis in zip(grid, axes, strict=True):
            for panel, filled in zip(row, found.panels, strict=True):
                _draw(panel, filled, axis)
            row[0].set_ylabel("test error (%)")
        for panel, filled in zip(grid[0], found.panels, strict=True):
            panel.set_title(filled.panel.title, loc="left", fontsize=9)
        words = (
            "Points: evaluations of every configuration, mean over seeds; filled: nothing is both "
            "sooner and lower."
        )
        under(figure, f"{words} {caption(found, timed='seconds' in axes)}")
    return Presentation(
        figure=figure,
        tables=tuple(_table(filled) for filled in found.panels),
        findings=tuple(finding for filled in found.panels for finding in _judge(filled)),
    )


def front(places: Sequence[Place]) -> list[Place]:
    """Return the places than which no other is both as soon and as low, the soonest first."""
    best, kept = float("inf"), []
    for place in sorted(places, key=lambda place: (place.time, place.error)):
        if place.error < best:
            kept.append(place)
            best = place.error
    return kept


def share(places: Sequence[Place], families: Sequence[str]) -> float:
    """Return the percentage of the front that some strategies make up."""
    kept = front(places)
    return 100 * sum(place.family in families for place in kept) / len(kept) if kept else 0.0


def _family(key: str) -> str:
    return key.split(" ")[0]


def _mean_places(filled: Filled, axis: Axis) -> list[Place]:
    return [
        Place(_family(entry.key), x, y)
        for entry, arm in filled.pairs
        for x, y in zip(*_line(arm.runs, axis), strict=True)
    ]


def _line(runs: Sequence[Run], axis: Axis) -> tuple[tuple[float, ...], tuple[float, ...]]:
    line = curve(runs, axis)
    return line.x, line.mean


def _by_seed(filled: Filled, axis: Axis) -> dict[int, list[Place]]:
    """Return the places of each seed that every configuration has."""
    found: dict[int, list[Place]] = {}
    seeds = [set(arm.seeds) for _, arm in filled.pairs]
    for seed in sorted(set.intersection(*seeds)) if seeds else ():
        found[seed] = [
            Place(_family(entry.key), at(point, axis), point.test_error)
            for entry, arm in filled.pairs
            for run in arm.runs
            if run.header.seed == seed
            for point in run.points
        ]
    return found


def _shares(filled: Filled, axis: Axis, of: Callable[[list[Place]], float]) -> Estimate:
    return estimate([of(places) for places in _by_seed(filled, axis).values()])


def _draw(panel: Axes, filled: Filled, axis: Axis) -> None:
    places = _mean_places(filled, axis)
    best = set(front(places))
    for key, name in FAMILIES.items():
        colour = strategy_colours([_ARMS[key]])[_ARMS[key]]
        mine = [place for place in places if place.family == key]
        rest = [place for place in mine if place not in best]
        mark: dict[str, Any] = {"marker": _MARKS[key], "color": colour, "linestyle": ""}
        panel.plot(*_xy(rest), **mark, markersize=3.5, alpha=0.3, fillstyle="none")
        top = [place for place in mine if place in best]
        panel.plot(*_xy(top), **mark, markersize=6, markeredgecolor="white", label=name, zorder=3)
    kept = front(places)
    panel.step(*_xy(kept), where="post", color="#444444", linewidth=0.8, zorder=2)
    panel.set_xlabel(AXIS_LABELS[axis])
    panel.set_xlim(left=0)
    scale_error(panel, span([place.error for place in places]))
    panel.legend(frameon=False, fontsize=8, loc="upper right", handletextpad=0.2)


def _xy(places: Sequence[Place]) -> tuple[list[float], list[float]]:
    return [place.time for place in places], [place.error for place in places]


def _axes(filled: Filled) -> tuple[Axis, ...]:
    return timed(_AXES, [run for _, arm in filled.pairs for run in arm.runs])


def _table(filled: Filled) -> Grid:
    rows, axes = [], _axes(filled)
    for key, name in FAMILIES.items():
        shares = [
            _shares(filled, axis, lambda places, key=key: share(places, [key])) for axis in axes
        ]
        configurations = sum(_family(entry.key) == key for entry, _ in filled.pairs)
        rows.append((name, str(configurations), *(with_interval(found) for found in shares)))
    fronts = (f"% of the front, {AXIS_WORDS[axis]}" for axis in axes)
    head = ("strategy", "configurations", *fronts)
    return Grid(filled.panel.title, head, tuple(rows))


def _judge(filled: Filled) -> Iterator[Finding]:
    ours = ("sb", "stale")
    for axis in _axes(filled):
        for rival in ("traditional", "kath18"):
            lead = _shares(
                filled,
                axis,
                lambda places, rival=rival: share(places, ours) - share(places, [rival]),
            )
            claim = (
                f"{filled.panel.title}: SB and Stale-SB make up more of the front in "
                f"{AXIS_WORDS[axis]} than {FAMILIES[rival]}"
            )
            yield above_zero(claim, lead, "points of share")
