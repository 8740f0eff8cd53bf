"""Figures of error over time and cost, their fronts, and what each says of the paper's claims."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from reproductions import claims, drawing
from reproductions.claims import above, below
from reproductions.figures import (
    SHORTENED,
    Found,
    Judge,
    Judged,
    PanelData,
    Presentation,
    presented,
)
from selective_backprop_lab.analysis.grouping import RunGroup
from selective_backprop_lab.analysis.statistics import (
    AXIS_LABELS,
    AXIS_WORDS,
    Axis,
    Estimate,
    at,
    curve,
    estimate,
    final_error,
    training_error,
)
from selective_backprop_lab.analysis.tables import Table, count, duration, percent, with_interval
from selective_backprop_lab.analysis.verdict import Finding, above_zero
from selective_backprop_lab.records.schema import Run
from selective_backprop_lab.report.panels import scale_error
from selective_backprop_lab.report.styles import span, strategy_colours

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
    _draw_lines(panel, lines, axis)


def _draw_lines(panel: Axes, lines: list[drawing.Line], axis: Axis) -> None:
    drawing.draw_lines(panel, lines)
    panel.set_xlabel(AXIS_LABELS[axis])
    panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter(FuncFormatter(drawing.thousands))
    panel.locator_params(axis="x", nbins=5)
    scale_error(panel, span([error for *_, line in lines for error in line.mean]))
    drawing.name_lines(panel, lines)


def present_poster(found: Found) -> Presentation:
    """Draw error and loss against images backpropagated, with the share that each filtered."""

    def named(shown: PanelData) -> PanelData:
        entries = tuple(
            replace(entry, label=f"{entry.label}, {percent(_filtered(arm))} filtered")
            if arm.runs
            else entry
            for entry, arm in zip(shown.panel.entries, shown.arms, strict=True)
        )
        return replace(shown, panel=replace(shown.panel, entries=entries))

    found = replace(found, panels=tuple(map(named, found.panels)))

    def draw_loss(panel: Axes, shown: PanelData) -> None:
        lines: list[drawing.Line] = [
            (entry.label, entry.style, curve(list(map(_as_loss, arm.runs)), "trained"))
            for entry, arm in shown.pairs
        ]
        _draw_lines(panel, lines, "trained")
        if shown is found.panels[0]:
            panel.set_ylabel("test loss")

    rows = by_axis(found, ("trained",), _draw)
    rows.append([partial(draw_loss, shown=shown) for shown in found.panels])
    drawn = drawing.sheet(rows, drawing.caption(found, curves=True))
    return presented(found, drawn, _ends, by_images)


def _as_loss(run: Run) -> Run:
    """Return a run whose test errors are its test losses."""
    points = tuple(replace(point, test_error=point.test_loss) for point in run.points)
    return replace(run, points=points)


def _filtered(arm: RunGroup) -> float:
    """Return the share of the candidates that an arm did not train on, over all its runs."""
    last = [run.points[-1] for run in arm.runs]
    return 1 - sum(p.trained for p in last) / sum(p.candidates for p in last)


def _ends(shown: PanelData) -> Table:
    """Return where each entry ended, and what it took."""

    def mean(field: str, write: Callable[[float], str] = count) -> claims.Cell:
        return lambda entry, arm: write(
            sum(getattr(run.points[-1], field) for run in arm.runs) / len(arm.runs)
        )

    columns = {
        "final error %": claims.each_mean(final_error),
        "filtered": lambda entry, arm: percent(_filtered(arm)),
        "updates": mean("updates"),
        "backpropagated": mean("trained"),
        "forwards": mean("forwards"),
        "cost": mean("cost", duration),
        "wall s": mean("seconds", duration),
        "CPU s": mean("cpu_seconds", duration),
    }
    if any(map(math.isfinite, map(training_error, shown.runs))):  # of old records it is not known
        columns["training error %"] = claims.each_mean(training_error)
    return claims.by_entry(shown, columns)


def sooner(axes: tuple[Axis, ...], quotes: Mapping[str, str]) -> Judge:
    """Return the judge of: entries learn sooner along the axes than traditional training.

    Args:
        axes: along which errors are compared.
        quotes: the name of the sentence that says so, by the entry's key.
    """

    def judge(shown: PanelData) -> Iterator[Judged]:
        for entry, quote in ((e, quotes[e.key]) for e, _ in shown.pairs if e.key in quotes):
            for axis in claims.timed(axes, shown.runs):
                keys, claim = (entry.key, "traditional"), "{} learns sooner than Traditional"
                yield from claims.sooner(shown, quote, claim, keys, axis)

    return judge


def by_time(shown: PanelData) -> Iterator[Judged]:
    """Judge figure 7."""
    yield from sooner(TIME, {"sb": "caption", "kath18": "kath18"})(shown)
    for axis in claims.timed(TIME, shown.runs):
        yield from claims.sooner(shown, "stale", "{} learns sooner than SB", ("stale", "sb"), axis)
    if shown.panel.setting.paper_data == "CIFAR-100":
        judge, keys = claims.ends_higher, ("sb", "traditional")
        yield from claims.compared(shown, "accuracy", "SB ends higher", keys, judge)


def present_time(found: Found) -> Presentation:
    """Draw figure 7, and list SB against what costs as much without choosing by loss."""
    shown = presenter(TIME, by_time)(found)
    tables = [table for each in found.panels if (table := _controls(each)) is not None]
    return replace(shown, tables=[*shown.tables, *tables])


def _controls(shown: PanelData) -> Table | None:
    ours, rows = shown.find("sb"), []
    for entry, arm in shown.pairs:
        if ours is not None and entry.key in {*SHORTENED, "random", "scored"}:
            sooner = claims.earlier(ours, arm, "cost")
            ends = claims.final_difference(ours, arm)
            cells = (with_interval(each, signed=True) for each in (sooner, ends))
            rows.append((f"against {entry.label}", *cells))
    head = ("SB, points of error", "mean over the same cost", "at the end")
    return (
        Table(head, rows, f"{shown.title}: SB against controls that the paper does not have")
        if rows
        else None
    )


def little_lost(shown: PanelData) -> Iterator[Judged]:
    """Judge figure 11: older losses save forward passes and cost little accuracy."""
    (_, fresh), *others = shown.pairs
    for entry, arm in others:
        claim = f"{shown.title}: {entry.label} ends about where fresh losses do"
        yield "caption", claims.ends_comparably(claim, arm, fresh)
        saved = claims.paired(arm, fresh, _forwards_saved)
        claim = f"{shown.title}: {entry.label} takes fewer forward passes"
        yield "caption", above_zero(claim, saved, "% of forward passes saved")


def _forwards_saved(one: Run, two: Run) -> float:
    return 100 * (1 - one.points[-1].forwards / two.points[-1].forwards)


def robust(shown: PanelData) -> Iterator[Judged]:
    """Judge figure 12: SB is faster throughout, and ends higher only at a fifth flipped."""
    keys = ("sb", "traditional")
    for axis in claims.timed(TIME, shown.runs):
        yield from claims.sooner(shown, "faster", "SB learns sooner than Traditional", keys, axis)
    quotes, claim, judge = (
        ("fifth", "review"),
        "SB ends higher than Traditional",
        claims.ends_higher,
    )
    if shown.panel.entries[0].plan.composition.noise < 0.2:
        quotes, judge = ("comparable",), claims.ends_comparably
        claim = "SB ends about where Traditional does"
    for quote in quotes:
        yield from claims.compared(shown, quote, claim, keys, judge)


# Within how many points of Traditional the paper says that SB ends, at a selectivity of so much.
WITHIN = {"CIFAR-10": (0.2, 0.92), "CIFAR-100": (0.25, 2.54)}


def selective_is_fast(shown: PanelData) -> Iterator[Judged]:
    """Judge figure 13: the more selective, the faster, and the higher the final error."""
    pairs = [(entry, arm) for entry, arm in shown.pairs if entry.plan.arm != "traditional"]
    pairs.sort(key=lambda pair: pair[0].plan.settings.rate)
    if len(pairs) < 2:
        return
    (least, few), (most, many) = pairs[0], pairs[-1]
    title = f"{shown.title}: {least.label}"
    claim = f"{title} learns sooner than {most.label}"
    yield "caption", claims.learns_sooner(claim, few, many, "cost")
    yield "caption", claims.ends_higher(f"{title} ends higher than {most.label}", few, many)
    base = shown.find("traditional")
    if base is None:
        return
    data = shown.panel.setting.paper_data
    for entry, arm in pairs:
        claim = f"{shown.title}: {entry.label} learns sooner than Traditional"
        yield "range", claims.learns_sooner(claim, arm, base, "cost")
        rate, points = WITHIN.get(data, (None, 0.0))
        if entry.plan.settings.rate == rate:
            claim = f"{shown.title}: {entry.label} ends within {points:g} points of Traditional"
            higher = claims.final_difference(arm, base)
            yield data, below(claim, higher, points, "points of final error")


def by_images(shown: PanelData) -> Iterator[Judged]:
    """Judge the poster: fewer images to the same error, a lower loss sooner, and most filtered."""
    ours = shown.find("sb")
    if ours is None:
        return
    warmup = shown.panel.setting.warmup

    def filtered(run: Run) -> float:
        last = run.points[-1]
        first = warmup * last.candidates  # all of which are trained on
        return 100 * (1 - (last.trained - first) / (last.candidates - first))

    share = claims.mean_of(ours, filtered)
    claim = f"{shown.title}: after the first epoch SB filters more than 85 % of the images"
    yield "filters", above(claim, share, 85.0, "% of the images")
    claim, keys = "SB ends about where Traditional does", ("sb", "traditional")
    yield from claims.compared(shown, "comparable", claim, keys, claims.ends_comparably)
    claim = "SB has a lower test error after as many images"
    yield from claims.sooner(shown, "comparable", claim, keys, "trained")

    def lower(claim: str, *arms: RunGroup) -> Finding:
        mine, theirs = (replace(arm, runs=tuple(map(_as_loss, arm.runs))) for arm in arms)
        found = claims.earlier(mine, theirs, "trained")
        return below(claim, found, 0.0, "of mean test loss over the same images")

    claim = "SB has a lower test loss after as many images"
    yield from claims.compared(shown, "loss", claim, keys, lower)


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


def _front_table(shown: PanelData) -> Table:
    rows, axes = [], claims.timed(TIME, shown.runs)
    for key, (name, *_) in FAMILIES.items():
        found = [_shares(shown, axis, partial(share, families=[key])) for axis in axes]
        configurations = sum(_family(entry.key) == key for entry, _ in shown.pairs)
        rows.append((name, str(configurations), *map(with_interval, found)))
    head = ("strategy", "configurations", *(f"% of the front, {AXIS_WORDS[axis]}" for axis in axes))
    return Table(head, tuple(rows), shown.title)


def _judge_front(shown: PanelData) -> Iterator[Judged]:
    ours = ("sb", "stale")
    for axis in claims.timed(TIME, shown.runs):
        where = f"of the front in {AXIS_WORDS[axis]}"
        claim = f"{shown.title}: SB and Stale-SB make up the majority {where}"
        found = _shares(shown, axis, partial(share, families=ours))
        yield "ours", above(claim, found, 50.0, "% of the front")
        for rival in ("traditional", "kath18"):

            def lead(places: list[Place], rival: str = rival) -> float:
                return share(places, ours) - share(places, [rival])

            claim = (
                f"{shown.title}: {FAMILIES[rival][0]} makes up less {where} than SB and Stale-SB"
            )
            yield rival, above(claim, _shares(shown, axis, lead), 0.0, "points of share")

    def behind(places: list[Place]) -> float:
        lowest = {
            family: min(place.error for place in places if place.family == family)
            for family in ("sb", "traditional")
        }
        return lowest["sb"] - lowest["traditional"]

    if {"sb", "traditional"} <= {_family(entry.key) for entry, _ in shown.pairs}:
        claim = f"{shown.title}: Traditional's lowest error is lower than SB's"
        found = _shares(shown, "cost", behind)
        yield "long", above(claim, found, 0.0, "points of error")
