"""Diet-SB: whether two nets, and SB and EL2N, leave out the same examples and classes."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from torch import Tensor

from reproductions.claims import paired
from reproductions.drawing import (
    LINE,
    End,
    caption,
    draw_images,
    draw_line,
    images_of,
    ruled,
    sheet,
    spread_of,
)
from reproductions.figures import Found, Presentation
from reproductions.rankings import by_class, lowest, mean_over, overlap, seen_last, standing
from selective_backprop.lab.analysis.grouping import RunGroup
from selective_backprop.lab.analysis.statistics import Estimate, estimate
from selective_backprop.lab.analysis.tables import Table, percent, with_interval
from selective_backprop.lab.analysis.verdict import Finding, above_zero
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import entitle, label_ends
from selective_backprop.lab.report.styles import Style, strategy_colours

PRUNED = (0.25, 0.5, 0.75)
HALF = 0.5
TWENTY = 20
_EL2N, _SELECTIONS = ("El2nRanks(", "ranks"), ("Selections(", "counts")
_SHARES = tuple(step / 20 for step in range(1, 20))
_CHANCE = Style("#7a7a7a", "dot", 1.6)
_LOOKS = (Style("#d55e00", "solid", 2.13), Style("#0072b2", "dash", 2.13))
_YOUNG = "EL2N of one young net per seed."
_COUNTED = "SB's least selected: fewest times over the whole run, at a selectivity of 50 %."
Overlaps = Mapping[str, Sequence[Estimate]]
"""By name, what is in both of the lowest so many, for each of `_SHARES`."""


def present_nets(found: Found) -> Presentation:
    """Draw how many of the examples with the lowest scores two nets have in common."""
    one, other = (shown.only for shown in found.panels)
    first, second = (str(shown.panel.setting.recipe.model) for shown in found.panels)
    ranks = [seen_last(run, *_EL2N) for run in other.runs]
    neighbours = [
        estimate([overlap(mine, theirs, share) for mine, theirs in pairwise(ranks)])
        for share in _SHARES
    ]
    overlaps = {
        f"{first} and {second}": _paired(one, _EL2N, other),
        f"{second}, two seeds": neighbours,
    }
    label = "lowest EL2N scores, % of the examples"
    drawing = _sheet(overlaps, label, f"{_YOUNG} {caption(found)}")
    findings = [*_beyond_chance(f"{first} and {second} score", one, _EL2N, other)]
    return Presentation(drawing, [_table(overlaps)], findings)


def present_selections(found: Found) -> Presentation:
    """Draw how many of SB's least selected examples have the lowest scores."""
    ours, scored = (shown.only for shown in found.panels)
    overlaps = {"SB's least selected": _paired(ours, _SELECTIONS, scored)}
    label = "SB's least selected and lowest EL2N, % of the examples each"
    drawing = _sheet(overlaps, label, f"{_COUNTED} {_YOUNG} {caption(found)}")
    findings = [*_beyond_chance("SB and EL2N rank", ours, _SELECTIONS, scored)]
    return Presentation(drawing, [_table(overlaps)], findings)


def _paired(one: RunGroup, mine: tuple[str, str], other: RunGroup) -> list[Estimate]:
    def both(a: Run, b: Run, share: float) -> float:
        return overlap(seen_last(a, *mine), seen_last(b, *_EL2N), share)

    return [paired(one, other, partial(both, share=share)) for share in _SHARES]


def _beyond_chance(
    words: str, one: RunGroup, mine: tuple[str, str], other: RunGroup
) -> Iterator[Finding]:
    for share in PRUNED:

        def more(a: Run, b: Run, share: float = share) -> float:
            return overlap(seen_last(a, *mine), seen_last(b, *_EL2N), share) - 100 * share

        claim = f"{words} the same {percent(share)} lowest, more than chance would (implied)"
        yield above_zero(claim, paired(one, other, more), "points of overlap beyond chance")


def _sheet(overlaps: Overlaps, label: str, words: str) -> Drawing:
    return sheet([[partial(_draw_overlaps, overlaps=overlaps, label=label)]], words, height=3.2)


def _draw_overlaps(panel: Axes, overlaps: Overlaps, label: str) -> None:
    x = [100 * share for share in _SHARES]
    ends: list[End] = [("chance", _CHANCE, x[-1], x[-1])]
    draw_line(panel, x, x, _CHANCE)
    for (name, values), style in zip(overlaps.items(), _LOOKS, strict=False):
        if not values[0].seeds:
            continue  # two seeds are needed
        y = [value.mean for value in values]
        band = [value.low for value in values], [value.high for value in values]
        draw_line(panel, x, y, style, band if values[0].seeds > 1 else None)
        ends.append((name, style, x[-1], y[-1]))
    panel.set_xlim(0, 100)
    panel.set_ylim(0, 100)
    panel.set_xlabel(label)
    panel.set_ylabel("of these, in both (%)")
    ruled(panel)
    label_ends(panel, ends, line=LINE)


def _table(overlaps: Overlaps) -> Table:
    rows = [
        (name, *(with_interval(values[_SHARES.index(share)]) for share in PRUNED))
        for name, values in overlaps.items()
    ]
    rows.append(("chance", *(f"{100 * share:.0f}" for share in PRUNED)))
    head = ("in both, %", *(f"lowest {percent(share)}" for share in PRUNED))
    return Table(head, tuple(rows), "Overlap")


def present_images(found: Found) -> Presentation:
    """Show the images of lowest EL2N, and of lowest rank by EL2N and SB's selections together."""
    ours, scored = (shown.only for shown in found.panels)
    data = images_of(found, found.panels[0])
    scores = standing(mean_over(scored.runs, *_EL2N))
    counts = mean_over(ours.runs, *_SELECTIONS)
    orders = {"lowest EL2N": scores, "lowest combined rank": scores + standing(counts)}
    lists = {title: order.argsort(stable=True)[:TWENTY].tolist() for title, order in orders.items()}
    cells = [
        [partial(draw_images, data=data, indices=indices, title=f"{TWENTY} images of {title}")]
        for title, indices in lists.items()
    ]
    words = (
        "Combined: the rank by EL2N plus that by SB's selections, both means over seeds. "
        f"{_COUNTED} {_YOUNG} {caption(found)}"
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
    return Presentation(sheet(cells, words, height=1.75), [table])


def present_classes(found: Found) -> Presentation:
    """Draw which part of each class SB and EL2N skip."""
    ours, scored = (shown.only for shown in found.panels)
    data, epochs = images_of(found, found.panels[0]), found.panels[0].panel.setting.recipe.epochs

    def means(values: Tensor) -> list[float]:
        return by_class(values, data.train_labels, data.classes)

    skips = [means(100 * (1 - seen_last(run, *_SELECTIONS) / epochs)) for run in ours.runs]
    prunes = [means(100 * lowest(seen_last(run, *_EL2N), HALF)) for run in scored.runs]
    skipped = {
        name: [estimate(column) for column in zip(*seeds, strict=True)]
        for name, seeds in (("SB", skips), ("EL2N", prunes))
    }
    words = (
        "SB at 50 %: the share of its candidates that it did not train on, the first epoch "
        "included; EL2N: the share of a class among the lowest half. "
        f"{_YOUNG} Lines: 95 % t-interval over seeds. {caption(found)}"
    )
    cell = partial(_draw_classes, names=data.class_names, skipped=skipped)
    rows = [
        (name, *(with_interval(values[place]) for values in skipped.values()))
        for place, name in enumerate(data.class_names)
    ]
    head = ("class", *(f"skipped by {name}, %" for name in skipped))

    def alike(one: Run, two: Run) -> float:
        mine = means(-seen_last(one, *_SELECTIONS).double())
        theirs = means(lowest(seen_last(two, *_EL2N), HALF))
        return float(torch.corrcoef(torch.tensor([mine, theirs]))[0, 1])

    claim = "SB and EL2N skip the same classes most (implied)"
    return Presentation(
        sheet([[cell]], words, height=0.9 + 0.3 * data.classes),
        [Table(head, tuple(rows), "Skipped, by class")],
        [above_zero(claim, paired(ours, scored, alike), "correlation over classes")],
    )


def _draw_classes(
    panel: Axes, names: Sequence[str], skipped: Mapping[str, Sequence[Estimate]]
) -> None:
    looks = (("selective-backprop", -0.2), ("el2n", 0.2))
    for (name, values), (arm, shift) in zip(skipped.items(), looks, strict=True):
        panel.barh(
            [place + shift for place in range(len(names))],
            [value.mean for value in values],
            xerr=[spread_of(value) for value in values],
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
