"""Figure 2: the easiest and the hardest images of a data set."""

from collections.abc import Iterator

import torch

from reproductions.jiang2019.drawing import caption, sheet, under
from reproductions.jiang2019.items import Filled, Found, Presentation
from reproductions.jiang2019.judging import Finding, above_zero
from reproductions.jiang2019.pictures import data_of, draw_images
from reproductions.jiang2019.rankings import mean_over, overlap, seen_last
from reproductions.jiang2019.text import Grid
from selective_backprop.lab.analysis.statistics import estimate

SHOWN = 10
HARDEST = 0.1
_PROBE = "LossRanks("
_WORDS = (
    "By the mean rank of each image's loss, in eval mode and without augmentation, over all "
    "evaluations of traditional training and all seeds."
)


def present(found: Found) -> Presentation:
    """Show the images whose losses rank lowest, and those whose losses rank highest."""
    with sheet(2, len(found.panels), height=1.75) as (figure, grid):
        for column, filled in enumerate(found.panels):
            data, order = data_of(found, filled), _order(filled)
            title = filled.panel.title
            draw_images(grid[0][column], data, order[:SHOWN], f"{title}, easiest")
            draw_images(grid[1][column], data, order[::-1][:SHOWN], f"{title}, hardest")
        under(figure, f"{_WORDS} {caption(found)}")
    return Presentation(
        figure=figure,
        tables=tuple(_table(found, filled) for filled in found.panels),
        findings=tuple(finding for filled in found.panels for finding in _judge(filled)),
    )


def _order(filled: Filled) -> list[int]:
    ((_, arm),) = filled.pairs
    return mean_over(arm.runs, _PROBE, "ranks").argsort(stable=True).tolist()


def _table(found: Found, filled: Filled) -> Grid:
    data, order = data_of(found, filled), _order(filled)
    rows = [
        (name, *(f"{index} {data.class_names[int(data.train_labels[index])]}" for index in shown))
        for name, shown in (("easiest", order[:5]), ("hardest", order[::-1][:5]))
    ]
    return Grid(
        f"{filled.panel.title}: number and class of the first five",
        ("", *map(str, range(1, 6))),
        tuple(rows),
    )


def _judge(filled: Filled) -> Iterator[Finding]:
    """Judge what the figure takes for granted: an image is hard whatever the seed."""
    ((_, arm),) = filled.pairs
    # Negated, the hardest are the lowest.
    hard = [-seen_last(run, _PROBE, "ranks").double() for run in arm.runs]
    above = [
        overlap(mine, torch.stack(others).mean(0), HARDEST) - 100 * HARDEST
        for place, mine in enumerate(hard)
        if (others := hard[:place] + hard[place + 1 :])
    ]
    claim = f"{filled.panel.title}: the hardest tenth is that of the other seeds too (implied)"
    yield above_zero(claim, estimate(above), "% in common beyond chance")
