"""Figures of error over time and cost, their fronts, and what each says of the paper's claims."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from reproductions import claims, drawing
from reproductions.figures import Found, PanelData, Presentation, presented
from selective_backprop.lab.analysis.grouping import RunGroup
from selective_backprop.lab.analysis.statistics import (
    AXIS_LABELS,
    AXIS_WORDS,
    Axis,
    Estimate,
    at,
    curve,
    estimate,
)
from selective_backprop.lab.analysis.tables import Table, count, duration, percent, with_interval
from selective_backprop.lab.analysis.verdict import Finding, above_zero
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import scale_error
from selective_backprop.lab.report.styles import span, strategy_colours

Judge = Callable[[PanelData], Iterator[Finding]]
TIME: tuple[Axis, ...] = ("seconds", "cost")  # the seconds of the runs' own clock


def presenter(axes: tuple[Axis, ...], judge: Judge) -> Callable[[Found], Presentation]:
    """Return what draws error along axes, a row for each, and judges every panel."""

    def present(found: Found) -> Presentation:
        shown = claims.timed(axes, found.runs)
        words = drawing.caption(found, curves=True, timed="seconds" in shown)
        return presented(found, drawing.sheet(by_axis(found, shown, _draw), words), _ends, judge)

    return present


def by_axis(
    found: Found, axes: tuple[Axis, ...], draw: Callable[[Axes, PanelData, Axis], object]
) -> list[list[drawing.Cell]]:
    """Return a row of panels for each axis, titles above the first."""

    def cell(panel: Axes, place: int, shown: PanelData, axis: Axis) -> None:
        draw(panel, shown, axis)
        if shown is found.panels[0]:
            panel.set_ylabel("test error (%)")
        if not place:
            drawing.entitled(panel, shown.title)

    return [
        [partial(cell, place=place, shown=shown, axis=axis) for shown in found.panels]
        for place, axis in enumerate(axes)
    ]


def _draw(panel: Axes, shown: PanelData, axis: Axis) -> None:
    """Draw the error of each entry along an axis, named where it ends."""
    lines: list[drawing.Line] = [
        (entry.label, entry.style, curve(arm.runs, axis)) for entry, arm in shown.pairs
    ]
    drawing.draw_lines(panel, lines)
    panel.set_xlabel(AXIS_LABELS[axis])
    panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter(FuncFormatter(drawing.thousands))
    panel.locator_params(axis="x", nbins=5)
    scale_error(panel, span([error for *_, line in lines for error in line.mean]))
    drawing.name_lines(panel, lines)


def present_poster(found: Found) -> Presentation:
    """Draw error against images backpropagated, with the share that each strategy filtered."""

    def named(shown: PanelData) -> PanelData:
        entries = tuple(
            replace(entry, label=f"{entry.label}, {percent(_filtered(arm))} filtered")
            if arm.runs
            else entry
            for entry, arm in zip(shown.panel.entries, shown.arms, strict=True)
        )
        return replace(shown, panel=replace(shown.panel, entries=entries))

    panels = tuple(map(named, found.panels))
    return presenter(("trained",), by_images)(replace(found, panels=panels))


def _filtered(arm: RunGroup) -> float:
    """Return the share of the candidates that an arm did not train on, over all its runs."""
    last = [run.points[-1] for run in arm.runs]
    return 1 - sum(p.trained for p in last) / sum(p.candidates for p in last)


def _ends(shown: PanelData) -> Table:
    """Return where each entry ended, and what it took."""
    columns: dict[str, tuple[str, Callable[[float], str]]] = {
        "updates": ("updates", count),
        "backpropagated": ("trained", count),
        "forwards": ("forwards", count),
        "cost": ("cost", duration),
        "wall s": ("seconds", duration),
        "CPU s": ("cpu_seconds", duration),
    }
    rows = []
    for entry, arm in shown.pairs:
        last = [run.points[-1] for run in arm.runs]
        means = [
            write(sum(getattr(point, field) for point in last) / len(last))
            for field, write in columns.values()
        ]
        rows.append(
            (entry.label, with_interval(claims.final(arm)), percent(_filtered(arm)), *means)
        )
    return Table(("strategy", "final error %", "filtered", *columns), tuple(rows), shown.title)


def sooner(axes: tuple[Axis, ...], *keys: str) -> Judge:
    """Return the judge of: these entries learn sooner along the axes than traditional training."""

    def judge(shown: PanelData) -> Iterator[Finding]:
        base = shown.find("traditional")
        for entry, arm in shown.pairs:
            if base is None or entry.key not in keys:
                continue
            for axis in claims.timed(axes, base.runs):
                claim = f"{shown.title}: {entry.label} learns sooner than Traditional"
                yield claims.learns_sooner(claim, arm, base, axis)

    return judge


def by_time(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 7, and SB against what costs as much without choosing: that is our claim."""
    yield from sooner(TIME, "sb", "stale", "kath18")(shown)
    ours = shown.find("sb")
    for key, name in (
        ("shortened", "Traditional, shortened to its cost"),
        ("scored", "Random, scored"),
    ):
        other = shown.find(key)
        if ours is not None and other is not None:
            claim = f"{shown.title}: SB learns sooner than {name} (implied)"
            yield claims.learns_sooner(claim, ours, other, "cost")


def little_lost(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 11: older losses save forward passes and cost little accuracy."""
    (_, fresh), *others = shown.pairs
    for entry, arm in others:
        claim = f"{shown.title}: {entry.label} ends about where fresh losses do"
        yield claims.ends_comparably(claim, arm, fresh)
        saved = claims.paired(arm, fresh, _forwards_saved)
        claim = f"{shown.title}: {entry.label} takes fewer forward passes"
        yield above_zero(claim, saved, "% of forward passes saved")


def _forwards_saved(one: Run, two: Run) -> float:
    return 100 * (1 - one.points[-1].forwards / two.points[-1].forwards)


def robust(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 12: SB is faster throughout, and ends higher only at a fifth flipped."""
    base, ours, title = shown.find("traditional"), shown.find("sb"), shown.title
    if base is None or ours is None:
        return
    yield claims.learns_sooner(f"{title}: SB learns sooner than Traditional", ours, base, "cost")
    if shown.panel.entries[0].plan.noise < 0.2:
        yield claims.ends_comparably(f"{title}: SB ends about where Traditional does", ours, base)
    else:
        yield claims.ends_higher(f"{title}: SB ends higher than Traditional", ours, base)


def selective_is_fast(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 13: the more selective, the faster, and the higher the final error."""
    pairs = [(entry, arm) for entry, arm in shown.pairs if entry.plan.arm != "traditional"]
    pairs.sort(key=lambda pair: pair[0].plan.settings.rate)
    if len(pairs) < 2:
        return
    (least, few), (most, many) = pairs[0], pairs[-1]
    title = f"{shown.title}: {least.label}"
    yield claims.learns_sooner(f"{title} learns sooner than {most.label}", few, many, "cost")
    yield claims.ends_higher(f"{title} ends higher than {most.label}", few, many)
    base = shown.find("traditional")
    if base is not None:
        for entry, arm in pairs:
            claim = f"{shown.title}: {entry.label} learns sooner than Traditional"
            yield claims.learns_sooner(claim, arm, base, "cost")


def by_images(shown: PanelData) -> Iterator[Finding]:
    """Judge the poster: fewer images backpropagated to the same error, and most filtered."""
    yield from sooner(("trained",), "sb")(shown)
    ours = shown.find("sb")
    if ours is not None:
        share = claims.mean_of(
            ours, lambda run: 100 * (1 - run.points[-1].trained / run.points[-1].candidates)
        )
        claim = f"{shown.title}: SB leaves images out of backpropagation"
        yield above_zero(claim, share, "% of the images filtered")


# Figure 14: which strategies make up the front of time against error

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


def present_front(found: Found) -> Presentation:
    """Draw all points and the front, and count each strategy's share of it, seed by seed."""
    axes = claims.timed(TIME, found.runs)
    words = (
        "Points: evaluations of every configuration, mean over seeds; filled: nothing is both "
        f"sooner and lower. {drawing.caption(found, timed='seconds' in axes)}"
    )
    return presented(
        found, drawing.sheet(by_axis(found, axes, _draw_front), words), _front_table, _judge_front
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


def _draw_front(panel: Axes, shown: PanelData, axis: Axis) -> None:
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
    return claims.timed(TIME, [run for _, arm in shown.pairs for run in arm.runs])


def _front_table(shown: PanelData) -> Table:
    rows, axes = [], _axes(shown)
    for key, (name, *_) in FAMILIES.items():
        found = [_shares(shown, axis, partial(share, families=[key])) for axis in axes]
        configurations = sum(_family(entry.key) == key for entry, _ in shown.pairs)
        rows.append((name, str(configurations), *map(with_interval, found)))
    head = ("strategy", "configurations", *(f"% of the front, {AXIS_WORDS[axis]}" for axis in axes))
    return Table(head, tuple(rows), shown.title)


def _judge_front(shown: PanelData) -> Iterator[Finding]:
    for axis in _axes(shown):
        for rival in ("traditional", "kath18"):

            def lead(places: list[Place], rival: str = rival) -> float:
                return share(places, ("sb", "stale")) - share(places, [rival])

            claim = (
                f"{shown.title}: SB and Stale-SB make up more of the front in "
                f"{AXIS_WORDS[axis]} than {FAMILIES[rival][0]}"
            )
            yield above_zero(claim, _shares(shown, axis, lead), "points of share")
