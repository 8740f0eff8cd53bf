"""What the Diet-SB report compares; how it was set up is not known, so all of this is ours.

"A share is pruned" means that so much of an epoch's examples is not trained on, the same for every
strategy: random training leaves out others each epoch, SB selects what is left, EL2N leaves the
lowest scores out of the data set for good, and Diet-SB does both, each by the root of what is left.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from matplotlib.axes import Axes
from torch import Tensor

from reproductions import claims, drawing, figures, observations
from reproductions.probes import El2nRanks, Selections
from selective_backprop.lab.analysis.grouping import RunGroup
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    Curve,
    Estimate,
    at,
    estimate,
    final_error,
)
from selective_backprop.lab.analysis.tables import Table, duration, percent, with_interval
from selective_backprop.lab.analysis.verdict import Finding, above_zero, below_zero
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import draw_phases, entitle
from selective_backprop.lab.report.styles import Style, strategy_colours
from selective_backprop.lab.training.run_config import RunConfig

PRUNED = (0.25, 0.5, 0.75)
HALF = 0.5
TWENTY = 20
_DASHES = {"random": "dot", "sb": "solid", "el2n": "dash", "diet": "longdash"}
_SETUP = (
    "x % pruned: so much of an epoch is not trained on. Random leaves out other examples each "
    "epoch; SB selects after an epoch of everything; EL2N prunes by two models trained for a tenth "
    "of the run each, their time included; Diet-SB prunes and selects, each down to the root of "
    "what is left."
)
_ALL = Style("#7a7a7a", "solid", 1.4)
_FAR = 80.0  # where the axis of pruned shares ends
_NAMES = {"random": "Random", "sb": "SB", "el2n": "EL2N", "diet": "Diet-SB"}
_EL2N, _SELECTIONS = ("El2nRanks(", "ranks"), ("Selections(", "counts")
_SHARES = tuple(step / 20 for step in range(1, 20))
_CHANCE = Style("#7a7a7a", "dot", 1.6)
_LOOKS = (Style("#d55e00", "solid", 2.13), Style("#0072b2", "dash", 2.13))
_YOUNG = "EL2N of one young net per seed."
_COUNTED = "SB's least selected: fewest times over the whole run, at a selectivity of 50 %."
Overlaps = Mapping[str, Curve]
"""By name, what is in both of the lowest so many, for each of `_SHARES`."""


def accuracy(scale: figures.Scale) -> Sequence[figures.PanelSpec]:
    """Return random training, SB, EL2N and Diet-SB, at each share, and traditional training."""
    setting = scale.pruned
    four = [entry for share in PRUNED for entry in _four(setting, share)]
    return [
        figures.PanelSpec(setting.title, setting, (figures.entry("traditional", setting), *four))
    ]


def seven(scale: figures.Scale) -> Sequence[figures.PanelSpec]:
    """Return seven methods, six of which leave out a half."""
    setting = scale.pruned
    random, ours, el2n, diet = _four(setting, HALF)
    stale = figures.entry("stale", setting, rate=1 - HALF)
    both = _pruning(setting, "el2n-random", keep=math.sqrt(HALF), rate=math.sqrt(HALF))
    mixed = _entry("EL2N + random", "el2n-random", both)
    entries = (figures.entry("traditional", setting), random, ours, stale, el2n, mixed, diet)
    plain = tuple(replace(each, label=each.label.removesuffix(" 50 %")) for each in entries)
    return [figures.PanelSpec(f"{setting.title}, 50 % pruned", setting, plain)]


def nets(scale: figures.Scale) -> Sequence[figures.PanelSpec]:
    """Return two nets, young, whose EL2N scores are wanted."""
    return [_scored(setting) for setting in scale.scored]


def chosen(scale: figures.Scale) -> Sequence[figures.PanelSpec]:
    """Return SB, whose selections are counted, and the second young net."""
    setting = scale.pruned
    ours = figures.probed(_four(setting, HALF)[1], Selections())
    return [figures.PanelSpec(setting.title, setting, (ours,)), _scored(scale.scored[1])]


def _scored(setting: figures.Setting) -> figures.PanelSpec:
    return figures.PanelSpec(
        setting.title,
        setting,
        (figures.probed(figures.entry("traditional", setting), El2nRanks()),),
    )


def _four(
    setting: figures.Setting, share: float
) -> tuple[figures.Entry, figures.Entry, figures.Entry, figures.Entry]:
    """Return the four strategies that train on all but a share of an epoch's examples."""
    left, words = 1 - share, f" {percent(share)}"
    root = math.sqrt(left)
    random = figures.plan(setting, "random-backprop", rate=left)
    ours = figures.plan(setting, "selective-backprop", rate=left)
    return (
        _entry(f"Random{words}", "random", random),
        _entry(f"SB{words}", "sb", ours),
        _entry(f"EL2N{words}", "el2n", _pruning(setting, "el2n", keep=left)),
        _entry(f"Diet-SB{words}", "diet", _pruning(setting, "diet-sb", keep=root, rate=root)),
    )


def _pruning(
    setting: figures.Setting, arm: str, *, keep: float, rate: float | None = None
) -> RunConfig:
    plan = figures.plan(setting, arm, rate=rate)
    return replace(plan, settings=replace(plan.settings, keep=keep))


def _entry(label: str, key: str, plan: RunConfig) -> figures.Entry:
    return figures.styled(label, key, plan, dash=_DASHES.get(key, "solid"))


def present_runtime(found: figures.Found) -> figures.Presentation:
    """Draw and list the seconds of each method."""
    cells = [
        partial(draw_phases, groups=[arm for _, arm in shown.pairs], room=3.2)
        for shown in found.panels
    ]
    figure = drawing.sheet([cells], f"{_SETUP} {drawing.caption(found, timed=True)}", height=3.0)
    return figures.presented(found, figure, _runtimes, _faster)


def _runtimes(shown: figures.PanelData) -> Table:
    base, rows = shown.find("traditional"), []
    reference = _seconds(base).mean if base else float("nan")
    for entry, arm in shown.pairs:
        wall, cpu, cost = (
            claims.mean_of(arm, lambda run, axis=axis: at(run.points[-1], axis)).mean
            for axis in ("seconds", "cpu_seconds", "cost")
        )
        prepared = claims.mean_of(
            arm, lambda run: float((run.end or {})["meters"]["prepared_cost"])
        ).mean
        speed_up = f"{reference / _seconds(arm).mean:.2f}×"
        times = (duration(wall), duration(cpu), speed_up, f"{cost:.2f}", f"{prepared:.2f}")
        rows.append((entry.label, *times, with_interval(_accuracy(arm))))
    times = ("wall s", "CPU s", "speed-up", "cost, epochs", "of it preparing")
    return Table(("method", *times, "accuracy %"), tuple(rows), shown.title)


def _seconds(arm: RunGroup) -> Estimate:
    axis = claims.clock(arm.runs)
    return claims.mean_of(arm, lambda run: at(run.points[-1], axis))


def _accuracy(arm: RunGroup) -> Estimate:
    return claims.mean_of(arm, lambda run: 100 - final_error(run))


def _faster(shown: figures.PanelData) -> Iterator[Finding]:
    diet = shown.find("diet")
    axis = claims.clock(diet.runs if diet else [])

    def longer(one: Run, two: Run) -> float:
        return at(one.points[-1], axis) - at(two.points[-1], axis)

    for key in ("traditional", "sb"):
        other = shown.find(key)
        if diet is not None and other is not None:
            claim = f"{shown.title}: Diet-SB takes less time than {other.label} (implied)"
            yield below_zero(claim, claims.paired(diet, other, longer), AXIS_WORDS[axis])


def present_accuracy(found: figures.Found) -> figures.Presentation:
    """Draw and list the accuracy of each method, by the share that is pruned."""
    words = f"Means and 95 % t-intervals over seeds. {_SETUP}"
    return drawing.present_panels(found, _draw, words, _accuracies, _keeps, height=3.2)


def _by_share(
    shown: figures.PanelData,
) -> Mapping[str, Mapping[float, tuple[figures.Entry, RunGroup]]]:
    """Return the arms of each method by what it prunes."""
    found: dict[str, dict[float, tuple[figures.Entry, RunGroup]]] = {key: {} for key in _NAMES}
    for entry, arm in shown.pairs:
        for share in PRUNED:
            if entry.key in found and entry.label.endswith(f" {percent(share)}"):
                found[entry.key][share] = (entry, arm)
    return found


def _draw(panel: Axes, shown: figures.PanelData) -> None:
    lines: list[drawing.Line] = []
    for key, arms in _by_share(shown).items():
        each = [
            ([100 - final_error(run) for run in arm.runs], entry) for entry, arm in arms.values()
        ]
        if each:
            seeds = list(zip(*(values for values, _ in each), strict=False))
            curve = drawing.curve_at([100 * share for share in arms], seeds)
            lines.append((_NAMES[key], each[0][1].style, curve))
    base = shown.find("traditional")
    if base is not None:
        everything = drawing.curve_at([20.0, _FAR], [[_accuracy(base).mean] * 2])
        lines.append(("Traditional, all", _ALL, everything))
    drawing.draw_lines(panel, lines, most=len(lines))
    panel.set_xticks([100 * share for share in PRUNED])
    panel.set_xlim(20, _FAR)
    panel.set_ylim(*panel.get_ylim())  # as it is now, for the names
    panel.set_xlabel("pruned (% of the examples of an epoch)")
    panel.set_ylabel("accuracy at the end (%)")
    drawing.ruled(panel, "y")
    drawing.name_lines(panel, lines)
    drawing.entitled(panel, shown.title)


def _accuracies(shown: figures.PanelData) -> Table:
    by_share, rows = _by_share(shown), []
    for key, name in _NAMES.items():
        arms = [by_share[key].get(share) for share in PRUNED]
        rows.append((name, *(with_interval(_accuracy(each[1])) if each else "–" for each in arms)))
    base = shown.find("traditional")
    if base is not None:
        rows.append(("Traditional, nothing pruned", *[with_interval(_accuracy(base))] * 3))
    head = ("accuracy, %", *(f"{percent(share)} pruned" for share in PRUNED))
    return Table(head, tuple(rows), shown.title)


def _keeps(shown: figures.PanelData) -> Iterator[Finding]:
    by_share = _by_share(shown)
    for share in PRUNED:
        random = by_share["random"].get(share)
        for key in ("sb", "el2n", "diet"):
            ours = by_share[key].get(share)
            if ours and random:
                more = claims.paired(
                    ours[1], random[1], lambda one, two: final_error(two) - final_error(one)
                )
                claim = f"{percent(share)} pruned: {_NAMES[key]} is more accurate than Random"
                yield above_zero(f"{claim} (implied)", more, "points of accuracy")


def present_nets(found: figures.Found) -> figures.Presentation:
    """Draw how many of the examples with the lowest scores two nets have in common."""
    one, other = (shown.only for shown in found.panels)
    first, second = (str(shown.panel.setting.recipe.model) for shown in found.panels)
    ranks = [observations.seen_last(run, *_EL2N) for run in other.runs]
    overlaps = {
        f"{first} and {second}": _paired(one, _EL2N, other),
        f"{second}, two seeds": _overlaps(pairwise(ranks)),
    }
    findings = [*_beyond_chance(f"{first} and {second} score", one, _EL2N, other)]
    label = "lowest EL2N scores, % of the examples"
    return _shown(overlaps, label, f"{_YOUNG} {drawing.caption(found)}", findings)


def present_selections(found: figures.Found) -> figures.Presentation:
    """Draw how many of SB's least selected examples have the lowest scores."""
    ours, scored = (shown.only for shown in found.panels)
    overlaps = {"SB's least selected": _paired(ours, _SELECTIONS, scored)}
    findings = [*_beyond_chance("SB and EL2N rank", ours, _SELECTIONS, scored)]
    label = "SB's least selected and lowest EL2N, % of the examples each"
    return _shown(overlaps, label, f"{_COUNTED} {_YOUNG} {drawing.caption(found)}", findings)


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


def _beyond_chance(
    words: str, one: RunGroup, mine: tuple[str, str], other: RunGroup
) -> Iterator[Finding]:
    found = _paired(one, mine, other)
    for share in PRUNED:
        place = _SHARES.index(share)
        more = estimate([values[place] - 100 * share for _, values in found.seeds])
        claim = f"{words} the same {percent(share)} lowest, more than chance would (implied)"
        yield above_zero(claim, more, "points of overlap beyond chance")


def _shown(
    overlaps: Overlaps, label: str, words: str, findings: Sequence[Finding]
) -> figures.Presentation:
    rows = [
        (name, *(with_interval(_estimate_at(curve, share)) for share in PRUNED))
        for name, curve in overlaps.items()
    ]
    rows.append(("chance", *(f"{100 * share:.0f}" for share in PRUNED)))
    head = ("in both, %", *(f"lowest {percent(share)}" for share in PRUNED))
    figure = drawing.sheet(
        [[partial(_draw_overlaps, overlaps=overlaps, label=label)]], words, height=3.2
    )
    return figures.Presentation(figure, [Table(head, tuple(rows), "Overlap")], findings)


def _estimate_at(curve: Curve, share: float) -> Estimate:
    place = _SHARES.index(share)
    return estimate([values[place] for _, values in curve.seeds])


def _draw_overlaps(panel: Axes, overlaps: Overlaps, label: str) -> None:
    x = [100 * share for share in _SHARES]
    lines: list[drawing.Line] = [("chance", _CHANCE, drawing.curve_at(x, [x]))]
    both = zip(overlaps.items(), _LOOKS, strict=False)
    lines += [(name, style, curve) for (name, curve), style in both if curve.x]
    drawing.draw_lines(panel, lines)
    panel.set_xlim(0, 100)
    panel.set_ylim(0, 100)
    panel.set_xlabel(label)
    panel.set_ylabel("of these, in both (%)")
    drawing.ruled(panel)
    drawing.name_lines(panel, lines)


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
    head = (f"{TWENTY} images of", "in lowest EL2N", "times selected", "classes")
    table = Table(head, tuple(rows), "Images")
    return figures.Presentation(drawing.sheet(cells, words, height=1.75), [table])


def present_classes(found: figures.Found) -> figures.Presentation:
    """Draw which part of each class SB and EL2N skip."""
    ours, scored = (shown.only for shown in found.panels)
    data, epochs = (
        drawing.images_of(found, found.panels[0]),
        found.panels[0].panel.setting.recipe.epochs,
    )

    def means(values: Tensor) -> list[float]:
        return observations.by_class(values, data.train_labels, data.classes)

    skips = [
        means(100 * (1 - observations.seen_last(run, *_SELECTIONS) / epochs)) for run in ours.runs
    ]
    prunes = [
        means(100 * observations.lowest(observations.seen_last(run, *_EL2N), HALF))
        for run in scored.runs
    ]
    skipped = {
        name: [estimate(column) for column in zip(*seeds, strict=True)]
        for name, seeds in (("SB", skips), ("EL2N", prunes))
    }
    words = (
        "SB at 50 %: the share of its candidates that it did not train on, the first epoch "
        "included; EL2N: the share of a class among the lowest half. "
        f"{_YOUNG} Lines: 95 % t-interval over seeds. {drawing.caption(found)}"
    )
    cell = partial(_draw_classes, names=data.class_names, skipped=skipped)
    rows = [
        (name, *(with_interval(values[place]) for values in skipped.values()))
        for place, name in enumerate(data.class_names)
    ]
    head = ("class", *(f"skipped by {name}, %" for name in skipped))

    def alike(one: Run, two: Run) -> float:
        mine = means(-observations.seen_last(one, *_SELECTIONS).double())
        theirs = means(observations.lowest(observations.seen_last(two, *_EL2N), HALF))
        return float(torch.corrcoef(torch.tensor([mine, theirs]))[0, 1])

    claim = "SB and EL2N skip the same classes most (implied)"
    return figures.Presentation(
        drawing.sheet([[cell]], words, height=0.9 + 0.3 * data.classes),
        [Table(head, tuple(rows), "Skipped, by class")],
        [above_zero(claim, claims.paired(ours, scored, alike), "correlation over classes")],
    )


def _draw_classes(
    panel: Axes, names: Sequence[str], skipped: Mapping[str, Sequence[Estimate]]
) -> None:
    looks = (("selective-backprop", -0.2), ("el2n", 0.2))
    for (name, values), (arm, shift) in zip(skipped.items(), looks, strict=True):
        panel.barh(
            [place + shift for place in range(len(names))],
            [value.mean for value in values],
            xerr=[drawing.spread_of(value) for value in values],
            error_kw={"elinewidth": 0.8},
            height=0.36,
            color=strategy_colours([arm])[arm],
            label=name,
        )
    panel.set_yticks(range(len(names)), names)
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()
    panel.set_xlim(0, 100)
    panel.set_xlabel("of the class, skipped (%)")
    entitle(panel, "What is skipped", list(skipped), room=3.4)


FIGURES = figures.figures_of(
    Path(__file__).with_name("reported.toml"),
    {
        "diet-runtime": (present_runtime, seven),
        "diet-accuracy": (present_accuracy, accuracy),
        "diet-nets": (present_nets, nets),
        "diet-overlap": (present_selections, chosen),
        "diet-images": (present_images, chosen),
        "diet-classes": (present_classes, chosen),
    },
)
