"""Figure 15: how the odds of selection of a few examples change over training."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from reproductions.jiang2019.drawing import caption, sheet, under
from reproductions.jiang2019.items import Filled, Found, Presentation
from reproductions.jiang2019.judging import Finding, above_zero, paired
from reproductions.jiang2019.pictures import data_of
from reproductions.jiang2019.text import Grid, percent
from reproductions.jiang2019.watching import Pick, draw_series, follow, looks
from selective_backprop.lab.analysis.statistics import estimate
from selective_backprop.lab.analysis.tables import with_interval
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.styles import Style

_PROBE = "LossRanks("
_STYLES = (
    Style("#d55e00", "solid", 2.0),
    Style("#0072b2", "dash", 2.0),
    Style("#009e73", "dashdot", 2.0),
    Style("#cc79a7", "longdash", 2.0),
    Style("#e69f00", "dot", 2.2),
)
_TITLES = {"traditional": "without selection (Traditional)", "sb": "with selection (SB)"}
_WORDS = (
    "The first five training examples, seed 0: an example's odds are the share of lower losses "
    "among the training examples, to the power of β; in eval mode, without augmentation."
)


def present(found: Found) -> Presentation:
    """Draw the odds of five examples, where nothing is selected and where SB selects."""
    with sheet(1, len(found.panels) * len(_TITLES)) as (figure, grid):
        places = iter(grid[0])
        for filled in found.panels:
            data, beta = data_of(found, filled), _beta(filled)
            names = [data.class_names[int(label)] for label in data.train_labels[: len(_STYLES)]]
            for key, words in _TITLES.items():
                panel, arm = next(places), filled.find(key)
                panel.set_title(f"{filled.panel.title}, {words}", loc="left", fontsize=9)
                if arm is None:
                    continue
                one = replace(arm, runs=arm.runs[:1])
                draw_series(
                    panel,
                    [
                        follow(f"{place + 1}: {name}", style, one, _PROBE, _odds(place, beta))
                        for place, (name, style) in enumerate(zip(names, _STYLES, strict=False))
                    ],
                    limits=(-2, 102),
                )
                panel.set_ylabel(f"odds of selection at β = {beta:g} (%)")
        under(figure, f"{_WORDS} {caption(found)}")
    return Presentation(
        figure=figure,
        tables=tuple(map(_table, found.panels)),
        findings=tuple(finding for filled in found.panels for finding in _judge(filled)),
    )


def _beta(filled: Filled) -> float:
    return round(1 / filled.panel.setting.rate - 1, 6)


def _odds(place: int, beta: float) -> Pick:
    def pick(seen: Mapping[str, Any]) -> float:
        return 100 * seen["followed"][place] ** beta

    return pick


def _moved(run: Run) -> float:
    """Return by how many places in a hundred ranks move between looks, on average."""
    moves = [each.seen["moved"] for each in looks(run, _PROBE) if "moved" in each.seen]
    return 100 * sum(moves) / max(1, len(moves))


def _table(filled: Filled) -> Grid:
    rows = tuple(
        (_TITLES[entry.key], with_interval(estimate([_moved(run) for run in arm.runs])))
        for entry, arm in filled.pairs
    )
    head = ("", "places in a hundred that a loss's rank moves from look to look")
    words = f"{filled.panel.title}, {percent(filled.panel.setting.rate)} selectivity, all examples"
    return Grid(words, head, rows)


def _judge(filled: Filled) -> Iterator[Finding]:
    ours, base = filled.find("sb"), filled.find("traditional")
    if ours is not None and base is not None:
        claim = f"{filled.panel.title}: odds change more with selection than without (implied)"
        found = paired(ours, base, lambda one, two: _moved(one) - _moved(two))
        yield above_zero(claim, found, "places in a hundred, from look to look")
