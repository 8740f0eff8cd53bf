"""The Diet-SB poster's figures and table, redone; `methods` says what each method trains on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from matplotlib.axes import Axes
from torch import Tensor

from reproductions import claims, drawing, figures, observations
from reproductions.diet_sb import judging, methods
from reproductions.diet_sb.methods import BASELINE, NAMES
from reproductions.probes import El2nRanks, Selections
from selective_backprop_lab.analysis.grouping import RunGroup
from selective_backprop_lab.analysis.statistics import Curve, Estimate, estimate, final_error
from selective_backprop_lab.analysis.tables import Table, percent, with_interval
from selective_backprop_lab.analysis.verdict import Finding, above_zero, is_below
from selective_backprop_lab.records.schema import Run
from selective_backprop_lab.report.panels import draw_curve, entitle, spread
from selective_backprop_lab.report.styles import Style

# The rows of table 1: what each is judged by, and the seconds per epoch that it says.
TABLE: Mapping[str, tuple[str, float]] = {
    BASELINE: ("baseline", 45.77),
    "sb-50": ("sb", 43.37),
    "random-50": ("random", 27.19),
    "random-75": ("random-75", 18.83),
    "el2n-25": ("el2n", 35.97),
    "diet-50": ("diet-50", 37.86),
    "diet-62.5": ("diet-62", 32.66),
}
OVERLAPS = (0.25, 0.5, 0.75)  # shares at which overlaps are listed and judged
HALF, TWENTY, LISTED = 0.5, 20, 10
_SETUP = (
    "Dropped: of all training examples, so many are not trained on in an epoch. Diet-SB prunes "
    "25 % first, then SB selects. Whatever selects trains on everything for an epoch first."
)
_GREY = "#7a7a7a"
_ALL, _CHANCE = Style(_GREY, "solid", 1.4), Style(_GREY, "dot", 1.6)
_EL2N, _SELECTIONS = ("El2nRanks(", "ranks"), ("Selections(", "counts")
_SHARES = tuple(step / 20 for step in range(1, 20))
_LOOKS = (Style("#d55e00", "solid", 2.13), Style("#0072b2", "dash", 2.13))
_YOUNG = "EL2N of one young net per seed."
_COUNTED = "SB's least used: trained on the fewest times over the whole run, at 50 % dropped."
Overlaps = Mapping[str, Curve]
"""By name, what is in both of the lowest so many, for each of `_SHARES`."""


def seven(scale: figures.Scale) -> Sequence[figures.PanelSpec]:
    """Return the rows of table 1."""
    setting = scale.pruned
    rows = {
        entry.key: entry for spec in (*backprop(scale), *pruning(scale)) for entry in spec.entries
    }
    return [figures.PanelSpec(setting.title, setting, tuple(rows[key] for key in TABLE))]


def backprop(scale: figures.Scale) -> Sequence[figures.PanelSpec]:
    """Return Random-Backprop and SB at each share."""
    rows = (("random", methods.BACKPROP), ("sb", methods.BACKPROP))
    return [methods.panel(scale.pruned, scale.pruned.title, *rows)]


def pruning(scale: figures.Scale) -> Sequence[figures.PanelSpec]:
    """Return EL2N, SB and Diet-SB."""
    rows = (("el2n", methods.EL2N), ("sb", (*methods.EL2N, 0.75)), ("diet", methods.DIET))
    return [methods.panel(scale.pruned, scale.pruned.title, *rows)]


def remarked(scale: figures.Scale) -> Sequence[figures.PanelSpec]:
    """Return the same methods on the data set that the poster only remarks on."""
    few = methods.FEW_BACKPROP
    rows = (("random", few), ("sb", few), ("el2n", (0.25, 0.5)), ("diet", methods.DIET))
    setting = scale.remarked
    return [] if setting is None else [methods.panel(setting, setting.title, *rows)]


def nets(scale: figures.Scale) -> Sequence[figures.PanelSpec]:
    """Return two nets, young, whose EL2N scores are wanted."""
    return [_scored(setting) for setting in scale.scored]


def chosen(scale: figures.Scale) -> Sequence[figures.PanelSpec]:
    """Return SB, whose selections are counted, and the same net young, whose scores are wanted."""
    setting = scale.pruned
    ours = figures.probed(methods.entry("sb", 0.5, setting), Selections())
    return [
        figures.PanelSpec(setting.title, setting, (ours,)),
        _scored(methods.young(setting)),
    ]


def _scored(setting: figures.Setting) -> figures.PanelSpec:
    entry = figures.probed(methods.baseline(setting), El2nRanks())
    return figures.PanelSpec(setting.title, setting, (entry,))


def present_runtime(found: figures.Found) -> figures.Presentation:
    """Draw and list the seconds per epoch of each row, beside the poster's."""
    words = f"Without preparation and warm-up. {_SETUP}"
    return drawing.present_panels(found, _draw_times, words, _times, _rows_agree, height=3.2)


def _ratios(shown: figures.PanelData) -> dict[str, Estimate]:
    """Return the time per epoch of each method as a share of the baseline's, by key."""
    base, epochs = shown.find(BASELINE), _epochs(shown)
    if base is None:
        return {}
    return {entry.key: judging.ratio(arm, base, epochs) for entry, arm in shown.pairs}


def _reported(key: str) -> float:
    """Return the poster's time per epoch as a share of its baseline's."""
    return TABLE[key][1] / TABLE[BASELINE][1]


def _times(shown: figures.PanelData) -> Table:
    seconds, ratios, per_epoch = _per_epoch(shown)

    def prunes(entry: figures.Entry, cell: str) -> str:
        return cell if entry.key.startswith(("el2n", "diet")) else "–"

    def trained(entry: figures.Entry, arm: RunGroup) -> str:
        return (
            "all" if entry.key.startswith((BASELINE, "el2n")) else percent(entry.plan.settings.rate)
        )

    columns: dict[str, claims.Cell] = {
        "pruned first": lambda e, arm: prunes(e, percent(1 - e.plan.settings.keep)),
        "of the rest, trained on": trained,
        f"{seconds} per epoch": per_epoch,
        "ratio to Baseline": ratios,
        f"preparing once, {seconds}": lambda e, arm: prunes(
            e, f"{claims.mean_of(arm, judging.preparing).mean:.2f}"
        ),
        "the poster: s per epoch": lambda e, arm: f"{TABLE[e.key][1]:.2f}",
        "its ratio": lambda e, arm: f"{_reported(e.key):.2f}",
    }
    return claims.by_entry(shown, columns, head="method, total dropped")


def _per_epoch(shown: figures.PanelData) -> tuple[str, claims.Cell, claims.Cell]:
    """Return the unit of time, and the columns of ratios to the baseline and of epochs' times."""
    ratios, epochs = _ratios(shown), _epochs(shown)
    unit = "CPU s" if claims.clock(shown.runs) == "cpu_seconds" else "s"

    def ratio(entry: figures.Entry, arm: RunGroup) -> str:
        return with_interval(ratios[entry.key]) if entry.key in ratios else "–"

    return unit, ratio, claims.each_mean(lambda run: judging.per_epoch(run, epochs))


def _rows_agree(shown: figures.PanelData) -> Iterator[figures.Judged]:
    labels = {entry.key: entry.label for entry, _ in shown.pairs}
    for key, found in _ratios(shown).items():
        if key != BASELINE:
            claim = f"{shown.title}: {labels[key]} takes less time per epoch than Baseline"
            words = f"{with_interval(found)} of its time; the poster {_reported(key):.2f}"
            yield TABLE[key][0], Finding(claim, is_below(found, 1.0), words)


def _draw_times(panel: Axes, shown: figures.PanelData) -> None:
    ratios = _ratios(shown)
    labels = {entry.key: entry.label for entry, _ in shown.pairs if entry.key in ratios}
    looks = (("ours", "#0072b2", -0.2), ("the poster", "#d9a441", 0.2))
    for name, colour, shift in looks:
        ours = name == "ours"
        panel.barh(
            [place + shift for place in range(len(labels))],
            [ratios[key].mean if ours else _reported(key) for key in labels],
            xerr=[drawing.spread_of(ratios[key]) for key in labels] if ours else None,
            error_kw={"elinewidth": 0.8},
            height=0.36,
            color=colour,
            label=name,
        )
    panel.axvline(1.0, color=_GREY, linewidth=0.8, linestyle=":")
    panel.set_yticks(range(len(labels)), list(labels.values()))
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()
    panel.set_xlabel("time per epoch, Baseline = 1")
    entitle(panel, shown.title, [name for name, *_ in looks], room=3.2)


def _accuracy(judge: figures.Judge) -> Callable[[figures.Found], figures.Presentation]:
    """Return what draws and lists the accuracy of methods by the share dropped, and judges it."""
    words = f"Means and 95 % t-intervals over seeds. {_SETUP}"
    return lambda found: drawing.present_panels(found, _draw, words, _accuracies, judge, height=3.2)


present_backprop = _accuracy(judging.backprop)
present_pruning = _accuracy(judging.pruning)
present_remarked = _accuracy(judging.trends)


def _draw(panel: Axes, shown: figures.PanelData) -> None:
    lines: list[drawing.Line] = []
    for method, name in NAMES.items():
        arms = judging.dropped(shown, method)
        if arms:
            rows = zip(
                *([100 - final_error(run) for run in arm.runs] for arm in arms.values()),
                strict=False,
            )
            curve = drawing.curve_at([100 * share for share in arms], [*rows])
            style = next(e.style for e, _ in shown.pairs if e.key.startswith(f"{method}-"))
            lines.append((name, style, curve))
    places = [x for *_, curve in lines for x in curve.x]
    base = shown.find(BASELINE)
    if base is not None:
        ends = [min(places, default=0.0), max(places, default=100.0)]
        lines.append(
            ("Baseline", _ALL, drawing.curve_at(ends, [[judging.accuracy(base).mean] * 2]))
        )
    drawing.draw_lines(panel, lines, most=len(lines))
    panel.set_xticks(sorted({25.0, 50.0, 75.0, *places} - {62.5, 85.0}))
    low, high = panel.get_ylim()
    panel.set_ylim(max(low, 0.0), high)  # for the names; a band may reach below 0
    panel.set_xlabel("dropped (% of the training examples)")
    panel.set_ylabel("accuracy at the end (%)")
    drawing.framed(panel, shown.title, grid="y")
    drawing.name_lines(panel, lines)


def _accuracies(shown: figures.PanelData) -> Table:
    seconds, ratios, per_epoch = _per_epoch(shown)
    columns: dict[str, claims.Cell] = {
        "accuracy, %": lambda entry, arm: with_interval(judging.accuracy(arm)),
        f"{seconds} per epoch": per_epoch,
        "ratio to Baseline": ratios,
        "cost of the run, passes": lambda entry, arm: (
            f"{claims.mean_of(arm, lambda run: run.points[-1].cost).mean:.2f}"
        ),
    }
    return claims.by_entry(shown, columns, head="method, dropped")


def present_nets(found: figures.Found) -> figures.Presentation:
    """Draw how many of the examples with the lowest scores two nets have in common."""
    one, other = (shown.only for shown in found.panels)
    first, second = (str(shown.panel.setting.recipe.model) for shown in found.panels)
    ranks = [observations.seen_last(run, *_EL2N) for run in other.runs]
    both = _paired(one, _EL2N, other)
    overlaps = {f"{first} and {second}": both, f"{second}, two seeds": _overlaps(pairwise(ranks))}
    findings = _beyond_chance("transferable", f"{first} and {second} prune the same", both)
    label = "pruned by EL2N, % of the examples"
    return _shown(overlaps, label, f"{_YOUNG} {drawing.caption(found)}", findings)


def present_selections(found: figures.Found) -> figures.Presentation:
    """Draw how many of SB's least used examples have the lowest scores."""
    ours, scored = (shown.only for shown in found.panels)
    both = _paired(ours, _SELECTIONS, scored)
    claim = "SB uses least, and EL2N scores lowest, the same"
    label = "N: SB's least used and lowest EL2N, % of the examples each"
    words = f"{_COUNTED} {_YOUNG} {drawing.caption(found)}"
    return _shown({"SB's least used": both}, label, words, _beyond_chance("often", claim, both))


def _overlaps(pairs: Iterable[tuple[Tensor, Tensor]]) -> Curve:
    rows = [
        [observations.overlap(mine, theirs, share) for share in _SHARES] for mine, theirs in pairs
    ]
    return drawing.curve_at([100 * share for share in _SHARES], rows)


def _paired(one: RunGroup, mine: tuple[str, str], other: RunGroup) -> Curve:
    theirs = {run.header.seed: observations.seen_last(run, *_EL2N) for run in other.runs}
    shared = [run for run in one.runs if run.header.seed in theirs]
    return _overlaps(
        (observations.seen_last(run, *mine), theirs[run.header.seed]) for run in shared
    )


def _beyond_chance(quote: str, words: str, found: Curve) -> list[figures.Judged]:
    return [
        (
            quote,
            above_zero(
                f"{words} {percent(share)}, more than chance would",
                _overlap_at(found, share, 100 * share),
                "points of overlap beyond chance",
            ),
        )
        for share in OVERLAPS
    ]


def _shown(
    overlaps: Overlaps, label: str, words: str, findings: Sequence[figures.Judged]
) -> figures.Presentation:
    rows = [
        (name, *(with_interval(_overlap_at(curve, share)) for share in OVERLAPS))
        for name, curve in overlaps.items()
    ]
    rows.append(("chance", *(f"{100 * share:.0f}" for share in OVERLAPS)))
    head = ("in both, %", *(f"lowest {percent(share)}" for share in OVERLAPS))
    cell = partial(_draw_overlaps, overlaps=overlaps, label=label)
    figure = drawing.sheet([[cell]], words, height=3.2)
    return figures.Presentation(figure, [Table(head, rows, "Overlap")], findings)


def _overlap_at(curve: Curve, share: float, chance: float = 0.0) -> Estimate:
    place = _SHARES.index(share)
    return estimate([values[place] - chance for _, values in curve.seeds])


def _draw_overlaps(panel: Axes, overlaps: Overlaps, label: str) -> None:
    x = [100 * share for share in _SHARES]
    lines: list[drawing.Line] = [("chance", _CHANCE, drawing.curve_at(x, [x]))]
    both = zip(overlaps.items(), _LOOKS, strict=False)
    lines += [(name, style, curve) for (name, curve), style in both if curve.x]
    panel.set(xlim=(0, 100), ylim=(0, 100), xlabel=label, ylabel="of these, in both (%)")
    for name, style, curve in lines:  # which all end in one corner, where names have no room
        draw_curve(panel, curve, style, width=0.75, label=name)
    drawing.framed(panel, "", legend="lower right")


def present_images(found: figures.Found) -> figures.Presentation:
    """Show the images of lowest EL2N, and of lowest rank by EL2N and SB's selections together."""
    ours, scored = (shown.only for shown in found.panels)
    data = drawing.images_of(found, found.panels[0])
    scores = observations.standing(observations.mean_over(scored.runs, *_EL2N))
    counts = observations.mean_over(ours.runs, *_SELECTIONS)
    orders = {"lowest EL2N": scores, "lowest combined rank": scores + observations.standing(counts)}
    lists = {title: order.argsort(stable=True)[:TWENTY].tolist() for title, order in orders.items()}
    cells = [
        [
            partial(
                drawing.draw_images, data=data, indices=indices, title=f"{TWENTY} images of {title}"
            )
        ]
        for title, indices in lists.items()
    ]
    words = (
        "Combined: the rank by EL2N plus that by SB's selections, both means over seeds. "
        f"{_COUNTED} {_YOUNG} {drawing.caption(found)}"
    )
    rows = [
        (
            title,
            str(len({*indices} & {*lists["lowest EL2N"]})),
            f"{float(counts[indices].mean()):.2f}",
            str(len(data.train_labels[indices].unique())),
        )
        for title, indices in lists.items()
    ]
    rows.append(("all images", "–", f"{float(counts.mean()):.2f}", str(data.classes)))
    head = (f"{TWENTY} images of", "in lowest EL2N", "times used", "classes")
    table = Table(head, tuple(rows), "Images")
    return figures.Presentation(drawing.sheet(cells, words, height=1.75), [table])


def present_classes(found: figures.Found) -> figures.Presentation:
    """Draw which part of each class SB and EL2N leave out."""
    ours, scored = (shown.only for shown in found.panels)
    data, epochs = drawing.images_of(found, found.panels[0]), _epochs(found.panels[0])

    def means(values: Tensor) -> list[float]:
        return observations.by_class(values, data.train_labels, data.classes)

    def by_sb(run: Run) -> list[float]:
        return means(100 * (1 - observations.seen_last(run, *_SELECTIONS) / epochs))

    def by_el2n(run: Run) -> list[float]:
        return means(100 * observations.lowest(observations.seen_last(run, *_EL2N), HALF))

    def alike(one: Run, two: Run) -> float:
        return float(torch.corrcoef(torch.tensor([by_sb(one), by_el2n(two)]))[0, 1])

    left = {
        name: [estimate(column) for column in zip(*map(of, runs), strict=True)]
        for name, of, runs in (("SB", by_sb, ours.runs), ("EL2N", by_el2n, scored.runs))
    }
    order = sorted(
        range(data.classes), key=lambda place: -sum(e[place].mean for e in left.values())
    )
    ends = [*order[:LISTED], *order[LISTED:][-LISTED:]]
    rows = [
        (data.class_names[place], *(with_interval(values[place]) for values in left.values()))
        for place in ends
    ]
    head = ("class", *(f"left out by {name}, %" for name in left))
    title = "Left out, the classes at both ends" if len(ends) < data.classes else "Left out"
    words = (
        "SB at 50 %: the share of a class's candidates that it did not train on, the first epoch "
        "included; EL2N: the share of a class among the lowest half. Means over seeds. "
        f"{_YOUNG} {drawing.caption(found)}"
    )
    named = [
        [(data.class_names[place], place) for place in end] for end in (order[:5], order[5:][-5:])
    ]
    claim = "SB and EL2N leave the same classes out most"
    return figures.Presentation(
        drawing.sheet([[partial(_draw_classes, left=left, named=named)]], words, height=4.0),
        [Table(head, rows, title)],
        [
            (
                "classes",
                above_zero(claim, claims.paired(ours, scored, alike), "correlation over classes"),
            )
        ],
    )


def _epochs(shown: figures.PanelData) -> int:
    return shown.panel.setting.recipe.epochs


def _draw_classes(
    panel: Axes,
    left: Mapping[str, Sequence[Estimate]],
    named: Sequence[Sequence[tuple[str, int]]],
) -> None:
    """Draw all classes; those most left out are named to the right, the least to the left."""
    by_sb, by_el2n = ([each.mean for each in left[name]] for name in ("SB", "EL2N"))
    panel.scatter(by_el2n, by_sb, s=14, color="#0072b2", alpha=0.7, linewidth=0)
    # Names stand where no share can be.
    panel.set(xlim=(-20, 120), xticks=range(0, 101, 20), ylim=panel.get_ylim())
    bottom, top = panel.get_ylim()
    for ends, edge, side in zip(named, (104, -4), ("left", "right"), strict=True):
        ends = sorted(ends, key=lambda end: by_sb[end[1]])
        shares = [(by_sb[place] - bottom) / (top - bottom) for _, place in ends]
        for (name, place), height in zip(ends, spread(shares), strict=True):
            panel.annotate(
                name.replace("_", " "),
                (by_el2n[place], by_sb[place]),
                xytext=(edge, bottom + height * (top - bottom)),
                fontsize=7.5,
                ha=side,
                va="center",
                arrowprops={"arrowstyle": "-", "color": _GREY, "linewidth": 0.6},
            )
    panel.set_xlabel("of the class among the half of lowest EL2N (%)")
    panel.set_ylabel("of the class not used by SB (%)")
    drawing.framed(panel, "Classes, those at both ends named")


FIGURES = figures.figures_of(
    Path(__file__).with_name("reported.toml"),
    {
        "diet-runtime": (present_runtime, seven),
        "diet-accuracy": (present_backprop, backprop),
        "diet-el2n": (present_pruning, pruning),
        "diet-cifar10": (present_remarked, remarked),
        "diet-nets": (present_nets, nets),
        "diet-overlap": (present_selections, chosen),
        "diet-images": (present_images, chosen),
        "diet-classes": (present_classes, chosen),
    },
)
