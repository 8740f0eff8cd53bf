"""Figure 14: which strategies make up the front of time against error."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from reproductions.claims import timed
from reproductions.drawing import AXIS_LABELS, caption, sheet
from reproductions.figures import Found, PanelData, Presentation, presented
from reproductions.jiang2019.curves import TIME, by_axis
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    Axis,
    Estimate,
    at,
    curve,
    estimate,
)
from selective_backprop.lab.analysis.tables import Table, with_interval
from selective_backprop.lab.analysis.verdict import Finding, above_zero
from selective_backprop.lab.report.panels import scale_error
from selective_backprop.lab.report.styles import span, strategy_colours

# Name, strategy and mark of each family of configurations.
FAMILIES = {
    "traditional": ("Traditional", "traditional", "s"),
    "sb": ("SB", "selective-backprop", "o"),
    "stale": ("Stale-SB", "stale-sb", "^"),
    "kath18": ("Kath18", "kath18", "D"),
}


@dataclass(frozen=True)
class Place:
    """An error that a configuration of a strategy had at a time."""

    family: str
    time: float
    error: float


def present(found: Found) -> Presentation:
    """Draw all points and the front, and count each strategy's share of it, seed by seed."""
    axes = timed(TIME, found.runs)
    words = (
        "Points: evaluations of every configuration, mean over seeds; filled: nothing is both "
        f"sooner and lower. {caption(found, timed='seconds' in axes)}"
    )
    return presented(found, sheet(by_axis(found, axes, _draw), words), _table, _judge)


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


def _shares(shown: PanelData, axis: Axis, of: Callable[[list[Place]], float]) -> Estimate:
    """Return what is made of the places of each seed that every configuration has."""
    seeds = [set(arm.seeds) for _, arm in shown.pairs]
    found = [
        [
            Place(_family(entry.key), at(point, axis), point.test_error)
            for entry, arm in shown.pairs
            for run in arm.runs
            if run.header.seed == seed
            for point in run.points
        ]
        for seed in sorted(set.intersection(*seeds))
    ]
    return estimate([of(places) for places in found])


def _draw(panel: Axes, shown: PanelData, axis: Axis) -> None:
    places = []
    for entry, arm in shown.pairs:
        line = curve(arm.runs, axis)
        both = zip(line.x, line.mean, strict=True)
        places += [Place(_family(entry.key), x, y) for x, y in both]
    kept = front(places)
    for key, (name, arm, marker) in FAMILIES.items():
        look: dict[str, Any] = {
            "marker": marker,
            "color": strategy_colours([arm])[arm],
            "linestyle": "",
        }
        mine = [place for place in places if place.family == key]
        rest = [place for place in mine if place not in kept]
        panel.plot(*_xy(rest), **look, markersize=3.5, alpha=0.3, fillstyle="none")
        top = [place for place in mine if place in kept]
        panel.plot(*_xy(top), **look, markersize=6, markeredgecolor="white", label=name, zorder=3)
    panel.step(*_xy(kept), where="post", color="#444444", linewidth=0.8, zorder=2)
    panel.set_xlabel(AXIS_LABELS[axis])
    panel.set_xlim(left=0)
    scale_error(panel, span([place.error for place in places]))
    panel.legend(frameon=False, fontsize=8, loc="upper right", handletextpad=0.2)


def _xy(places: Sequence[Place]) -> tuple[list[float], list[float]]:
    return [place.time for place in places], [place.error for place in places]


def _axes(shown: PanelData) -> tuple[Axis, ...]:
    return timed(TIME, [run for _, arm in shown.pairs for run in arm.runs])


def _table(shown: PanelData) -> Table:
    rows, axes = [], _axes(shown)
    for key, (name, *_) in FAMILIES.items():
        found = [_shares(shown, axis, partial(share, families=[key])) for axis in axes]
        configurations = sum(_family(entry.key) == key for entry, _ in shown.pairs)
        rows.append((name, str(configurations), *map(with_interval, found)))
    head = ("strategy", "configurations", *(f"% of the front, {AXIS_WORDS[axis]}" for axis in axes))
    return Table(head, tuple(rows), shown.title)


def _judge(shown: PanelData) -> Iterator[Finding]:
    for axis in _axes(shown):
        for rival in ("traditional", "kath18"):

            def lead(places: list[Place], rival: str = rival) -> float:
                return share(places, ("sb", "stale")) - share(places, [rival])

            claim = (
                f"{shown.title}: SB and Stale-SB make up more of the front in "
                f"{AXIS_WORDS[axis]} than {FAMILIES[rival][0]}"
            )
            yield above_zero(claim, _shares(shown, axis, lead), "points of share")
