"""Figure 5: which batches' gradients point where that of all examples does."""

from collections.abc import Iterator, Mapping
from typing import Any

from reproductions.jiang2019.drawing import caption, sheet, under
from reproductions.jiang2019.items import Filled, Found, Presentation
from reproductions.jiang2019.judging import Finding, above_zero, paired
from reproductions.jiang2019.text import Grid
from reproductions.jiang2019.watching import (
    Pick,
    Series,
    draw_series,
    follow,
    over_training,
)
from selective_backprop.lab.analysis.statistics import estimate
from selective_backprop.lab.analysis.tables import with_interval
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.styles import Style

_PROBE = "GradientAgreement("
_MEASURES = {
    "cosine": "cosine with the gradient of all",
    "sign": "signs as in the gradient of all (%)",
}
_MOST = {"cosine": 1.0, "sign": 100.0}
_LOOKS = {
    "high-loss": Style("#d55e00", "solid", 2.2),
    "random": Style("#0072b2", "dash", 1.8),
}
_WORDS = (
    "While SB trains: means of 8 batches of 128, of at most 2,000 that stand for all; high-loss "
    "batches are drawn with SB's odds at 33 %, random ones evenly. The net is in eval mode, images "
    "are not augmented. Bands: 95 % t-interval over seeds."
)


def present(found: Found) -> Presentation:
    """Draw cosine and agreement of signs over training."""
    with sheet(1, 2 * len(found.panels)) as (figure, grid):
        places = iter(grid[0])
        for filled in found.panels:
            for key, label in _MEASURES.items():
                panel = next(places)
                shown = [_series(filled, key, kind) for kind in _LOOKS]
                draw_series(panel, shown, most=_MOST[key])
                panel.set_ylabel(label)
                panel.set_title(filled.panel.title, loc="left", fontsize=9)
        under(figure, f"{_WORDS} {caption(found)}")
    return Presentation(
        figure=figure,
        tables=tuple(map(_table, found.panels)),
        findings=tuple(finding for filled in found.panels for finding in _judge(filled)),
    )


def _pick(key: str, kind: str) -> Pick:
    def pick(seen: Mapping[str, Any]) -> float:
        return seen[key][kind]

    return pick


def _series(filled: Filled, key: str, kind: str) -> Series:
    ((_, arm),) = filled.pairs
    return follow(kind, _LOOKS[kind], arm, _PROBE, _pick(key, kind))


def _table(filled: Filled) -> Grid:
    ((_, arm),) = filled.pairs
    rows = []
    for kind in _LOOKS:
        means = [
            estimate([over_training(_PROBE, _pick(key, kind))(run) for run in arm.runs])
            for key in _MEASURES
        ]
        rows.append((f"{kind} batches", *map(with_interval, means)))
    return Grid(f"{filled.panel.title}, over training", ("", *_MEASURES.values()), tuple(rows))


def _judge(filled: Filled) -> Iterator[Finding]:
    ((_, arm),) = filled.pairs
    for key, unit in (("cosine", "of mean cosine"), ("sign", "points of equal signs")):

        def ahead(run: Run, _: Run, key: str = key) -> float:
            mine, theirs = (over_training(_PROBE, _pick(key, kind))(run) for kind in _LOOKS)
            return mine - theirs

        claim = (
            f"{filled.panel.title}: high-loss batches point nearer to the gradient of all than "
            f"random ones, by {key} (implied)"
        )
        yield above_zero(claim, paired(arm, arm, ahead), unit)
