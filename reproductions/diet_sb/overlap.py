"""Diet-SB: whether two nets, and SB and EL2N, leave out the same examples and classes."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from matplotlib.axes import Axes
from torch import Tensor

from reproductions.diet_sb.lineup import HALF, PRUNED
from reproductions.jiang2019.drawing import caption, sheet, under
from reproductions.jiang2019.items import Filled, Found, Presentation
from reproductions.jiang2019.judging import Finding, above_zero, paired
from reproductions.jiang2019.pictures import data_of, draw_images
from reproductions.jiang2019.rankings import (
    by_class,
    lowest,
    mean_over,
    overlap,
    seen_last,
    standing,
)
from reproductions.jiang2019.text import Grid, percent
from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.analysis.statistics import Estimate, estimate
from selective_backprop.lab.analysis.tables import with_interval
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import DASHES, FAINT, entitle, label_ends
from selective_backprop.lab.report.styles import Style, strategy_colours

TWENTY = 20
_EL2N, _SELECTIONS = ("El2nRanks(", "ranks"), ("Selections(", "counts")
_SHARES = tuple(step / 20 for step in range(1, 20))
_CHANCE = Style("#7a7a7a", "dot", 1.6)
_FOUND = Style("#d55e00", "solid", 2.2)
_SAME = Style("#0072b2", "dash", 1.8)
_YOUNG = "EL2N of one young net per seed."
_COUNTED = "SB's least selected: fewest times over the whole run, at a selectivity of 50 %."


def present_nets(found: Found) -> Presentation:
    """Draw how many of the examples with the lowest scores two nets have in common."""
    one, other = (_arm(filled) for filled in found.panels)
    names = [str(filled.panel.setting.recipe.model) for filled in found.panels]
    curves = {
        f"{names[0]} and {names[1]}": _paired_overlaps(one, _EL2N, other, _EL2N),
        f"{names[1]}, two seeds": _neighbours(other),
    }
    with sheet(1, 1, height=3.2) as (figure, grid):
        _draw_overlaps(grid[0][0], curves, "lowest EL2N scores, % of the examples")
        under(figure, f"{_YOUNG} {caption(found)}")
    return Presentation(
        figure=figure,
        tables=(_overlap_table(curves),),
        findings=tuple(_beyond_chance(f"{names[0]} and {names[1]} score", one, _EL2N, other)),
    )


def present_selections(found: Found) -> Presentation:
    """Draw how many of SB's least selected examples have the lowest scores."""
    ours, scored = (_arm(filled) for filled in found.panels)
    curves = {"SB's least selected": _paired_overlaps(ours, _SELECTIONS, scored, _EL2N)}
    with sheet(1, 1, height=3.2) as (figure, grid):
        _draw_overlaps(
            grid[0][0], curves, "SB's least selected and lowest EL2N, % of the examples each"
        )
        under(figure, f"{_COUNTED} {_YOUNG} {caption(found)}")
    return Presentation(
        figure=figure,
        tables=(_overlap_table(curves),),
        findings=tuple(_beyond_chance("SB and EL2N rank", ours, _SELECTIONS, scored)),
    )


def present_images(found: Found) -> Presentation:
    """Show the images of lowest EL2N, and of lowest rank by EL2N and SB's selections together."""
    ours, scored = (_arm(filled) for filled in found.panels)
    data = data_of(found, found.panels[0])
    scores = standing(mean_over(scored.runs, *_EL2N))
    counts = mean_over(ours.runs, *_SELECTIONS)
    lists = {
        "lowest EL2N": scores.argsort(stable=True)[:TWENTY].tolist(),
        "lowest combined rank": (scores + standing(counts)).argsort(stable=True)[:TWENTY].tolist(),
    }
    with sheet(2, 1, height=1.75) as (figure, grid):
        for (panel,), (title, indices) in zip(grid, lists.items(), strict=True):
            draw_images(panel, data, indices, f"{TWENTY} images of {title}")
        words = "Combined: the rank by EL2N plus that by SB's selections, both means over seeds."
        under(figure, f"{words} {_COUNTED} {_YOUNG} {caption(found)}")
    rows = [
        (
            title,
            str(len(set(indices) & set(lists["lowest EL2N"]))),
            f"{float(counts[indices].mean()):.2f}",
            f"{len({int(label) for label in data.train_labels[indices]})}",
        )
        for title, indices in lists.items()
    ]
    head = (f"{TWENTY} images of", "in lowest EL2N", "times selected", "classes")
    rows.append(("all images", "–", f"{float(counts.mean()):.2f}", str(data.classes)))
    return Presentation(figure=figure, tables=(Grid("Images", head, tuple(rows)),))


def present_classes(found: Found) -> Presentation:
    """Draw which part of each class SB and EL2N skip."""
    ours, scored = (_arm(filled) for filled in found.panels)
    data, epochs = data_of(found, found.panels[0]), found.panels[0].panel.setting.recipe.epochs
    skipped = {
        "SB": [_by_class(100 * (1 - counts / epochs), data) for counts in _each(ours, _SELECTIONS)],
        "EL2N": [_by_class(100 * lowest(ranks, HALF), data) for ranks in _each(scored, _EL2N)],
    }
    with sheet(1, 1, height=0.9 + 0.3 * data.classes) as (figure, grid):
        _draw_classes(grid[0][0], data.class_names, skipped)
        words = (
            "SB at 50 %: the share of its candidates that it did not train on, the first epoch "
            "included; EL2N: the share of a class among the lowest half."
        )
        under(figure, f"{words} {_YOUNG} Lines: 95 % t-interval over seeds. {caption(found)}")
    rows = tuple(
        (
            name,
            *(with_interval(estimate([each[i] for each in seeds])) for seeds in skipped.values()),
        )
        for i, name in enumerate(data.class_names)
    )
    head = ("class", *(f"skipped by {name}, %" for name in skipped))

    def alike(one: Run, two: Run) -> float:
        mine = _by_class(-seen_last(one, *_SELECTIONS).double(), data)
        theirs = _by_class(lowest(seen_last(two, *_EL2N), HALF), data)
        return float(torch.corrcoef(torch.tensor([mine, theirs]))[0, 1])

    claim = "SB and EL2N skip the same classes most (implied)"
    finding = above_zero(claim, paired(ours, scored, alike), "correlation over classes")
    return Presentation(
        figure=figure, tables=(Grid("Skipped, by class", head, rows),), findings=(finding,)
    )


def _arm(filled: Filled) -> Arm:
    ((_, arm),) = filled.pairs
    return arm


def _each(arm: Arm, what: tuple[str, str]) -> list[Tensor]:
    return [seen_last(run, *what) for run in arm.runs]


def _by_class(values: Tensor, data: ImageData) -> list[float]:
    return by_class(values, data.train_labels, data.classes)


def _paired_overlaps(
    one: Arm, mine: tuple[str, str], other: Arm, theirs: tuple[str, str]
) -> list[Estimate]:
    def at(share: float) -> Estimate:
        return paired(
            one, other, lambda a, b: overlap(seen_last(a, *mine), seen_last(b, *theirs), share)
        )

    return [at(share) for share in _SHARES]


def _neighbours(arm: Arm) -> list[Estimate]:
    """Return the overlaps of one net's seeds, each with the next."""
    ranks = _each(arm, _EL2N)
    pairs = list(pairwise(ranks))
    return [estimate([overlap(one, two, share) for one, two in pairs]) for share in _SHARES]


def _beyond_chance(words: str, one: Arm, mine: tuple[str, str], other: Arm) -> Iterator[Finding]:
    for share in PRUNED:

        def more(a: Run, b: Run, share: float = share) -> float:
            return overlap(seen_last(a, *mine), seen_last(b, *_EL2N), share) - 100 * share

        claim = f"{words} the same {percent(share)} lowest, more than chance would (implied)"
        yield above_zero(claim, paired(one, other, more), "points of overlap beyond chance")


def _draw_overlaps(panel: Axes, curves: dict[str, list[Estimate]], label: str) -> None:
    x = [100 * share for share in _SHARES]
    ends = [("chance", _CHANCE, x[-1], x[-1])]
    panel.plot(x, x, color=_CHANCE.colour, linestyle=DASHES[_CHANCE.dash], linewidth=1.2)
    for (name, values), style in zip(curves.items(), (_FOUND, _SAME), strict=False):
        if not values[0].seeds:
            continue  # two seeds are needed
        y = [value.mean for value in values]
        panel.plot(x, y, color=style.colour, linestyle=DASHES[style.dash], linewidth=1.6)
        if values[0].seeds > 1:
            low, high = [value.low for value in values], [value.high for value in values]
            panel.fill_between(x, low, high, color=style.colour, alpha=0.13, linewidth=0)
        ends.append((name, style, x[-1], y[-1]))
    panel.set_xlim(0, 100)
    panel.set_ylim(0, 100)
    panel.set_xlabel(label)
    panel.set_ylabel("of these, in both (%)")
    panel.grid(True, color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
    label_ends(panel, ends, line=0.068)


def _overlap_table(curves: dict[str, list[Estimate]]) -> Grid:
    rows = [
        (name, *(with_interval(values[_SHARES.index(share)]) for share in PRUNED))
        for name, values in curves.items()
    ]
    rows.append(("chance", *(f"{100 * share:.0f}" for share in PRUNED)))
    head = ("in both, %", *(f"lowest {percent(share)}" for share in PRUNED))
    return Grid("Overlap", head, tuple(rows))


def _draw_classes(panel: Axes, names: Sequence[str], skipped: dict[str, list[list[float]]]) -> None:
    colours = strategy_colours(["selective-backprop", "el2n"])
    looks = zip(("selective-backprop", "el2n"), (-0.2, 0.2), strict=True)
    for (name, seeds), (arm, shift) in zip(skipped.items(), looks, strict=True):
        values = [estimate(column) for column in zip(*seeds, strict=True)]
        panel.barh(
            [place + shift for place in range(len(names))],
            [value.mean for value in values],
            xerr=[0.0 if value.seeds < 2 else value.half_width for value in values],
            error_kw={"elinewidth": 0.8},
            height=0.36,
            color=colours[arm],
            label=name,
        )
    panel.set_yticks(range(len(names)), names)
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()
    panel.set_xlim(0, 100)
    panel.set_xlabel("of the class, skipped (%)")
    entitle(panel, "What is skipped", list(skipped), room=3.4)
