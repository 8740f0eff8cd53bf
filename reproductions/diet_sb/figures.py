"""The Diet-SB poster's figures and table, redone. Its percentages are of the whole training set."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from torch import Tensor

from reproductions import claims, drawing, measures, settings
from reproductions.claims import Amount, Case, Measure, by_panel, figures_of, read_reported
from reproductions.measures import Evidence, Panel, curve_at, last, mean_of, over_seeds, paired
from reproductions.probes import El2nRanks, Selections
from reproductions.settings import STYLES, Arm, Scale, Setting
from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.estimates import Estimate, estimate
from selective_backprop_lab.analysis.tables import Table, percent, with_interval
from selective_backprop_lab.report.panels import Style, spread

_REPORTED = Path(__file__).with_name("reported.toml")
_TABLES = tomllib.loads(_REPORTED.with_name("methods.toml").read_text(encoding="utf-8"))
METHODS, TABLE = _TABLES["methods"], _TABLES["table-1"]
_QUOTES = read_reported(_REPORTED)["diet-runtime"].quotes
SECONDS = {key: float(_QUOTES[name].text.split()[-1].rstrip("s")) for key, name in TABLE.items()}
OVERLAPS = (0.25, 0.5, 0.75)  # shares at which overlaps are listed and judged
HALF, TWENTY, LISTED = 0.5, 20, 10
LEAST_USED = "SB's least used"
_GREY = "#7a7a7a"
_ALL, _CHANCE = Style(_GREY, "solid", 1.4), Style(_GREY, "dot", 1.6)
_SHARES = tuple(step / 20 for step in range(1, 20))
PRUNED_FIRST = 0.25  # by EL2N, before Diet-SB selects
EARLY = 0.1  # of a run, after which EL2N scores are taken, as the runs that prune take them


def _arm(method: str, dropped: float, setting: Setting, **options: Any) -> Arm:
    first = {"el2n": dropped, "diet": PRUNED_FIRST}.get(method, 0.0)
    name, arm, dash = METHODS[method]
    options |= {"keep": 1 - first, "young": EARLY} if first else {}
    run = settings.plan(setting, arm, rate=(1 - dropped) / (1 - first), **options)
    share = f"{100 * dropped:g}"
    return settings.styled(f"{name} {share} %", f"{method}-{share}", run, dash=dash)


def _diet(figure: str, group: str = "pruned") -> Callable[[Scale], Sequence[Panel]]:
    shares = _TABLES["dropped"][figure]

    def panel(setting: Setting) -> Panel:
        arms = [_arm(method, share, setting) for method in shares for share in shares[method]]
        return Panel(setting.title, setting, (_baseline(setting), *arms))

    return lambda scale: [*map(panel, scale[group])]


def _baseline(setting: Setting, **options: Any) -> Arm:
    return replace(settings.make_arm(queries.BASELINE, setting, **options), label="Baseline")


def _seven(scale: Scale) -> Sequence[Panel]:
    panels = [*_diet("a")(scale), *_diet("b")(scale)]
    arms = {arm.key: arm for panel in panels for arm in panel.arms}
    return [replace(panels[0], arms=tuple(arms[key] for key in TABLE))]


def _chosen(scale: Scale) -> Sequence[Panel]:
    (setting,) = scale["pruned"]
    ours = _arm("sb", 0.5, setting, probes=[Selections()])
    epochs = max(2, round(EARLY * setting.recipe.epochs))  # one would be all warm-up
    young = settings.changed(setting, epochs=epochs)
    young = replace(young, title=f"{setting.title}, young", evaluations=1)
    return [Panel(setting.title, setting, (ours,)), _scored(young)]


def _scored(setting: Setting) -> Panel:
    return Panel(setting.title, setting, (_baseline(setting, probes=[El2nRanks()]),))


# Time per epoch, and accuracy
def _epoch_seconds(runs: pd.DataFrame, epochs: int) -> pd.Series:
    """Return the seconds of an epoch on the runs' clock, without warm-up and preparation, by seed.

    An epoch is one pass over the examples that pruning left. If a run was not evaluated between its
    first epoch, the warm-up, and its end, the seconds are the mean of all epochs.
    """
    axis, end = measures.clock(runs), last(runs)
    warm = runs[runs.progress * epochs >= 0.99].drop_duplicates("seed").set_index("seed")
    later = (end[axis] - warm[axis]) / (epochs * (end.progress - warm.progress))
    every = (end[axis] - _preparing(runs)) / epochs
    return later.where(warm.evaluation < end.evaluation, every)


def _preparing(runs: pd.DataFrame) -> pd.Series:
    return measures.phase_seconds(last(runs)).reindex(columns=["prepare"], fill_value=0.0).prepare


def _ratio(panel: Panel, mine: pd.DataFrame, theirs: pd.DataFrame) -> Estimate | None:
    """Return the time per epoch as a share of another's; None if their seconds do not compare."""
    if not measures.together(pd.concat([mine, theirs])):
        return None
    epochs = panel.setting.recipe.epochs
    return paired(_epoch_seconds(mine, epochs) / _epoch_seconds(theirs, epochs))


def _ratios(panel: Panel) -> dict[str, Estimate]:
    base = panel[queries.BASELINE]
    found = {arm.key: _ratio(panel, panel[arm.key], base) for arm in panel.arms if len(base)}
    return {key: each for key, each in found.items() if each is not None}


def _listed(panel: Panel) -> Table:
    def cells(arm: Arm, runs: pd.DataFrame) -> dict[str, str]:
        prunes, timed = arm.key.startswith(("el2n", "diet")), _per_epoch(panel, arm, runs)
        every, theirs = arm.key.startswith((queries.BASELINE, "el2n")), SECONDS[arm.key]
        if timed:
            prepared = f"{_preparing(runs).mean():.2f}" if prunes else "–"
            timed[f"preparing once, {_unit(panel)}"] = prepared
        return {
            "pruned first": percent(1 - arm.plan.settings.keep) if prunes else "–",
            "of the rest, trained on": "all" if every else percent(arm.plan.settings.rate),
            **timed,
            "the poster: s per epoch": f"{theirs:.2f}",
            "its ratio": f"{theirs / SECONDS[queries.BASELINE]:.2f}",
        }

    return panel.table(cells, head="method, total dropped")


def _unit(panel: Panel) -> str:
    return "CPU s" if measures.clock(panel.runs) == "cpu_seconds" else "s"


def _per_epoch(panel: Panel, arm: Arm, runs: pd.DataFrame) -> dict[str, str]:
    if not measures.together(panel.runs):
        return {}
    found = _ratio(panel, runs, panel[queries.BASELINE]) if queries.BASELINE in panel else None
    return {
        f"{_unit(panel)} per epoch": mean_of(_epoch_seconds(runs, panel.setting.recipe.epochs)),
        "ratio to Baseline": with_interval(found) if found else "–",
    }


def _draw_runtime(evidence: Evidence) -> Drawing | None:
    timed = any(map(_ratios, evidence.panels))
    return drawing.side_by_side(evidence, _draw_times, 3.2) if timed else None


def _draw_times(axes: Axes, panel: Panel) -> None:
    ratios = _ratios(panel)
    theirs = [SECONDS[key] / SECONDS[queries.BASELINE] for key in ratios]
    columns = {"ours": [each.mean for each in ratios.values()], "the poster": theirs}
    widths = pd.Series([each.half_width for each in ratios.values()]).fillna(0.0)
    look: dict[str, Any] = {"xerr": {"ours": widths}, "width": 0.76}
    look |= {"error_kw": {"elinewidth": 0.8, "ecolor": "black", "zorder": 3}}
    bars = pd.DataFrame(columns, [arm.label for arm in panel.arms if arm.key in ratios])
    look["color"] = ["#0072b2", "#d9a441"]
    drawing.draw_bars(axes, bars, panel.title, "time per epoch, Baseline = 1", **look)
    axes.axvline(1.0, color=_GREY, linewidth=0.8, linestyle=":")


def _draw_accuracies(axes: Axes, panel: Panel) -> None:
    lines: list[drawing.Line] = []
    for method, (name, *_) in METHODS.items():
        arms = [arm for arm in panel.arms if arm.key.startswith(f"{method}-")]
        if arms:
            dropped = [float(arm.key.removeprefix(f"{method}-")) for arm in arms]
            rows = zip(*(100 - queries.final(panel[arm.key]) for arm in arms), strict=False)
            lines.append((name, arms[0].style, curve_at(dropped, [*rows])))
    places = [x for *_, curve in lines for x in curve.x]
    if queries.BASELINE in panel:
        ends = [min(places, default=0.0), max(places, default=100.0)]
        accuracy = 100 - queries.final(panel[queries.BASELINE]).mean()
        lines.append(("Baseline", _ALL, curve_at(ends, [[accuracy] * 2])))
    drawing.draw_lines(axes, lines, most=len(lines))
    axes.set_xticks(sorted({25.0, 50.0, 75.0, *places} - {62.5, 85.0}))
    low, high = axes.get_ylim()
    look: dict[str, Any] = {"ylim": (max(low, 0.0), high)}  # a band may reach below 0
    look |= {"xlabel": "dropped (% of the training examples)", "ylabel": "accuracy at the end (%)"}
    drawing.finish(axes, panel.title, lines, **look)


def _accuracies_table(panel: Panel) -> Table:
    def cells(arm: Arm, runs: pd.DataFrame) -> dict[str, str]:
        accuracy, cost = mean_of(100 - queries.final(runs)), f"{last(runs).cost.mean():.2f}"
        times = _per_epoch(panel, arm, runs)
        return {"accuracy, %": accuracy, **times, "cost of the run, passes": cost}

    return panel.table(cells, head="method, dropped")


# The examples of lowest EL2N score, and those that SB uses least
def _ranks(panel: Panel) -> dict[int, Tensor]:
    return measures.seen_last(panel.runs, El2nRanks, "ranks")


def _uses(panel: Panel) -> dict[int, Tensor]:
    return measures.seen_last(panel.runs, Selections, "counts")


def _pairs(one: Panel, other: Panel) -> dict[str, list[tuple[Tensor, Tensor]]]:
    """Return what is compared, seed by seed: two nets and two seeds, or SB and EL2N."""
    is_sb, theirs = one.arms[0].key != queries.BASELINE, _ranks(other)
    ours = _uses(one) if is_sb else _ranks(one)
    both = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    if is_sb:
        return {LEAST_USED: both}
    first, second = (panel.setting.recipe.model for panel in (one, other))
    return {f"{first} and {second}": both, f"{second}, two seeds": [*pairwise(theirs.values())]}


def _overlaps(evidence: Evidence) -> dict[str, pd.DataFrame]:
    def of(pair: tuple[Tensor, Tensor]) -> dict[float, float]:
        return {share: measures.overlap(*pair, share) for share in _SHARES}

    pairs = _pairs(*evidence.panels)
    return {name: pd.DataFrame(map(of, own), columns=_SHARES) for name, own in pairs.items()}


def _overlaps_table(evidence: Evidence) -> Sequence[Table]:
    found = _overlaps(evidence).items()
    rows = [(name, *(mean_of(own[share]) for share in OVERLAPS)) for name, own in found]
    rows.append(("chance", *(f"{100 * share:.0f}" for share in OVERLAPS)))
    head = ("in both, %", *(f"lowest {percent(share)}" for share in OVERLAPS))
    return [Table(head, rows, "Overlap")]


def _draw_overlaps(evidence: Evidence) -> Drawing:
    x, found = [100 * share for share in _SHARES], _overlaps(evidence)
    lines: list[drawing.Line] = [("chance", _CHANCE, curve_at(x, [x]))]
    for (name, own), style in zip(found.items(), STYLES, strict=False):
        if len(own):
            lines.append((name, style, curve_at(x, own.to_numpy().tolist())))
    label = "pruned by EL2N, % of the examples"
    if LEAST_USED in found:
        label = "N: SB's least used and lowest EL2N, % of the examples each"

    def cell(axes: Axes) -> None:
        drawing.draw_lines(axes, lines, named=True)
        look: dict[str, Any] = {"xlim": (0, 100), "ylim": (0, 100), "xlabel": label}
        # Lines end in one corner, where names have no room.
        drawing.finish(axes, "", ylabel="of these, in both (%)", legend="lower right", **look)

    return drawing.sheet(evidence, [[cell]], height=3.2)


def _lowest_images(evidence: Evidence) -> tuple[Tensor, dict[str, list[int]]]:
    ours, scored = evidence.panels
    scores = measures.standing(measures.mean_over(scored.runs, El2nRanks, "ranks"))
    counts = measures.mean_over(ours.runs, Selections, "counts")
    orders = {"lowest EL2N": scores, "lowest combined rank": scores + measures.standing(counts)}
    lists = {title: order.argsort(stable=True)[:TWENTY].tolist() for title, order in orders.items()}
    return counts, lists


def _draw_lowest(evidence: Evidence) -> Drawing:
    data = evidence.panels[0].images
    cells: list[list[drawing.Cell]] = [
        [partial(drawing.draw_images, data=data, indices=each, title=f"{TWENTY} images of {title}")]
        for title, each in _lowest_images(evidence)[1].items()
    ]
    return drawing.sheet(evidence, cells, height=1.75)


def _lowest_table(evidence: Evidence) -> Sequence[Table]:
    data, (counts, lists) = evidence.panels[0].images, _lowest_images(evidence)
    rows = []
    for title, indices in lists.items():
        shared = len({*indices} & {*lists["lowest EL2N"]})
        classes = len(data.train_labels[indices].unique())
        rows.append((title, str(shared), f"{float(counts[indices].mean()):.2f}", str(classes)))
    rows.append(("all images", "–", f"{float(counts.mean()):.2f}", str(data.classes)))
    head = (f"{TWENTY} images of", "in lowest EL2N", "times used", "classes")
    return [Table(head, rows, "Images")]


# The classes that are left out
def _left_out(ours: Panel, scored: Panel) -> dict[str, pd.DataFrame]:
    data, epochs = ours.images, ours.setting.recipe.epochs
    shares = {
        "SB": {seed: 1 - counts / epochs for seed, counts in _uses(ours).items()},
        "EL2N": {seed: measures.lowest(each, HALF) for seed, each in _ranks(scored).items()},
    }

    def of_classes(parts: Mapping[int, Tensor]) -> pd.DataFrame:  # 0 for a class without examples
        columns = {seed: (100 * part).double().numpy() for seed, part in parts.items()}
        means = pd.DataFrame(columns).groupby(data.train_labels.numpy()).mean()
        return means.reindex(range(data.classes), fill_value=0.0).T

    return {name: of_classes(parts) for name, parts in shares.items()}


def _classes(evidence: Evidence) -> tuple[dict[str, list[Estimate]], list[int]]:
    parts = _left_out(*evidence.panels).items()
    left = {name: [over_seeds(own[place]) for place in own] for name, own in parts}
    sums = [sum(each.mean for each in both) for both in zip(*left.values(), strict=True)]
    return left, sorted(range(len(sums)), key=lambda place: -sums[place])


def classes_table(evidence: Evidence) -> Sequence[Table]:
    names, (left, order) = evidence.panels[0].images.class_names, _classes(evidence)
    ends = [*order[:LISTED], *order[LISTED:][-LISTED:]]
    rows = [(names[place], *(with_interval(own[place]) for own in left.values())) for place in ends]
    head = ("class", *(f"left out by {name}, %" for name in left))
    title = "Left out, the classes at both ends" if len(ends) < len(order) else "Left out"
    return [Table(head, rows, title)]


def _draw_classes(evidence: Evidence) -> Drawing:
    names, (left, order) = evidence.panels[0].images.class_names, _classes(evidence)
    named = [[(names[place], place) for place in end] for end in (order[:5], order[5:][-5:])]
    by_sb, by_el2n = ([each.mean for each in left[name]] for name in ("SB", "EL2N"))

    def cell(axes: Axes) -> None:
        axes.scatter(by_el2n, by_sb, s=14, color="#0072b2", alpha=0.7, linewidth=0)
        # Names stand where no share can be: the most left out to the right, the least to the left.
        bottom, top = axes.get_ylim()
        axes.set(xlim=(-20, 120), xticks=range(0, 101, 20), ylim=(bottom, top))
        for ends, edge, side in zip(named, (104, -4), ("left", "right"), strict=True):
            look: dict[str, Any] = {"fontsize": 7.5, "ha": side, "va": "center"}
            look["arrowprops"] = {"arrowstyle": "-", "color": _GREY, "linewidth": 0.6}
            ends = sorted(ends, key=lambda end: by_sb[end[1]])
            shares = [(by_sb[place] - bottom) / (top - bottom) for _, place in ends]
            for (name, place), height in zip(ends, spread(shares), strict=True):
                at, beside = (by_el2n[place], by_sb[place]), bottom + height * (top - bottom)
                axes.annotate(name.replace("_", " "), at, xytext=(edge, beside), **look)
        axes.set_xlabel("of the class among the half of lowest EL2N (%)")
        axes.set_ylabel("of the class not used by SB (%)")
        drawing.finish(axes, "Classes, those at both ends named")

    return drawing.sheet(evidence, [[cell]], height=4.0)


def _beyond_chance(case: Case, share: float) -> Estimate:
    pairs, *_ = _pairs(*case.panels).values()
    return estimate([measures.overlap(*pair, share) - 100 * share for pair in pairs])


MEASURES = {
    "accuracy": Measure(
        lambda case: measures.final_difference(case.theirs, case.mine), "points of accuracy"
    ),
    "accuracy lost": claims.MEASURES["final error"]._replace(unit="points of accuracy"),
    "examples kept": Amount(
        lambda case: over_seeds(100 * last(case.mine).candidates / last(case.theirs).candidates),
        "% of the examples",
    ),
    "time per epoch": Amount(
        lambda case: _ratio(case.panel, case.mine, case.theirs), "of its time"
    ),
    "overlap": Measure(_beyond_chance, "points of overlap beyond chance"),
    "correlation over classes": Measure(
        lambda case: paired(pd.DataFrame.corrwith(*_left_out(*case.panels).values(), axis=1)),
        "correlation over classes",
    ),
}
_ACCURACY: dict[str, Any] = {"tables": by_panel(_accuracies_table)}
_ACCURACY["draw"] = partial(drawing.side_by_side, draw=_draw_accuracies, height=3.2)
_CHOSEN = {"whole": True, "planned": _chosen}
_OVERLAP = {"draw": _draw_overlaps, "tables": _overlaps_table}
_NETS = {"planned": lambda scale: [*map(_scored, scale["scored"])]}
FIGURES = figures_of(
    _REPORTED,
    {
        "diet-runtime": {"planned": _seven, "draw": _draw_runtime, "tables": by_panel(_listed)},
        "diet-accuracy": {"planned": _diet("a"), **_ACCURACY},
        "diet-el2n": {"planned": _diet("b"), **_ACCURACY},
        "diet-cifar10": {"planned": _diet("remarked", "remarked"), **_ACCURACY},
        "diet-nets": _CHOSEN | _OVERLAP | _NETS,
        "diet-overlap": _CHOSEN | _OVERLAP,
        "diet-images": _CHOSEN | {"draw": _draw_lowest, "tables": _lowest_table},
        "diet-classes": _CHOSEN | {"draw": _draw_classes, "tables": classes_table},
    },
    MEASURES,
)
