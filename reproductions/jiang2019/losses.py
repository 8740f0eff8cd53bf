"""Figures 3 and 4: how losses are distributed, and what that makes of their odds."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from reproductions.jiang2019.drawing import caption, sheet, under
from reproductions.jiang2019.items import Filled, Found, Presentation
from reproductions.jiang2019.text import Grid, percent
from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.records.schema import Observation, Run
from selective_backprop.lab.report.panels import DASHES, FAINT
from selective_backprop.lab.report.styles import Style

PROBE = "LossQuantiles("
BETAS = (1, 2, 3)
_MOMENTS = {"a quarter through": 0.25, "halfway": 0.5, "at the end": 1.0}
_LOOKS = {
    "a quarter through": Style("#56b4e9", "dot", 1.8),
    "halfway": Style("#0072b2", "dash", 1.8),
    "at the end": Style("#d55e00", "solid", 2.2),
}
_BETA_LOOKS = {
    1: Style("#56b4e9", "dot", 1.8),
    2: Style("#d55e00", "solid", 2.2),
    3: Style("#0072b2", "dash", 1.8),
}
_FLOOR = 1e-4  # lower losses are drawn here


def quantiles_at(arm: Arm, progress: float) -> list[float]:
    """Return the mean quantiles over an arm's seeds, seen nearest to a moment of the run."""
    each = [_nearest(run, progress).seen["quantiles"] for run in arm.runs]
    return [fmean(values) for values in zip(*each, strict=True)]


def present_cdf(found: Found) -> Presentation:
    """Draw the share of the examples whose loss is at most so high, at several moments."""
    with sheet(1, len(found.panels)) as (figure, grid):
        for panel, filled in zip(grid[0], found.panels, strict=True):
            curves = {name: _snapshot(filled, at) for name, at in _MOMENTS.items()}
            shares = {name: _rising(values) for name, values in curves.items()}
            _draw(panel, curves, shares, _LOOKS)
            panel.set_title(filled.panel.title, loc="left", fontsize=9)
            panel.set_ylabel("share of the examples (%)")
        under(figure, f"{_WORDS} {caption(found)}")
    return Presentation(figure=figure, tables=tuple(map(_table, found.panels)))


def present_odds(found: Found) -> Presentation:
    """Draw the odds of selection of a loss, for several selectivities, halfway through."""
    with sheet(1, len(found.panels)) as (figure, grid):
        for panel, filled in zip(grid[0], found.panels, strict=True):
            values = _snapshot(filled, 0.5)
            curves = {f"β = {beta}: {percent(1 / (beta + 1))} selected": values for beta in BETAS}
            odds = {
                name: [100 * (share / 100) ** beta for share in _rising(values)]
                for name, beta in zip(curves, BETAS, strict=True)
            }
            looks = dict(zip(curves, _BETA_LOOKS.values(), strict=True))
            _draw(panel, curves, odds, looks)
            panel.set_title(filled.panel.title, loc="left", fontsize=9)
            panel.set_ylabel("probability of selection (%)")
        under(figure, f"Halfway through the run. {_WORDS} {caption(found)}")
    return Presentation(figure=figure, tables=tuple(map(_odds_table, found.panels)))


_WORDS = "Losses in eval mode, without augmentation; mean quantiles over seeds."


def _nearest(run: Run, progress: float) -> Observation:
    seen = [each for each in run.observations if each.probe.startswith(PROBE)]
    return min(seen, key=lambda each: abs(each.progress - progress))


def _snapshot(filled: Filled, progress: float) -> list[float]:
    ((_, arm),) = filled.pairs  # the panels of these figures have one entry each
    return quantiles_at(arm, progress)


def _rising(values: Sequence[float]) -> list[float]:
    return [100 * i / (len(values) - 1) for i in range(len(values))]


def _draw(
    panel: Axes,
    curves: Mapping[str, Sequence[float]],
    heights: Mapping[str, Sequence[float]],
    looks: Mapping[str, Style],
) -> None:
    for name, losses in curves.items():
        x = [max(loss, _FLOOR) for loss in losses]
        style = looks[name]
        panel.plot(
            x,
            heights[name],
            color=style.colour,
            linestyle=DASHES[style.dash],
            linewidth=style.width,
            label=name,
        )
    panel.set_xscale("log")
    # Losses span about a decade: powers of ten alone would be one label, or none.
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_ylim(0, 103)
    panel.set_xlabel("cross-entropy loss")
    panel.grid(True, color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.legend(frameon=False, fontsize=8, loc="upper left", handlelength=2.4)


def _table(filled: Filled) -> Grid:
    shares = (10, 25, 50, 75, 90)
    rows = []
    for name, at in _MOMENTS.items():
        values = _snapshot(filled, at)
        steps = len(values) - 1
        rows.append((name, *(f"{values[round(share * steps / 100)]:.4f}" for share in shares)))
    head = ("loss", *(f"{share} % are below" for share in shares))
    return Grid(filled.panel.title, head, tuple(rows))


def _odds_table(filled: Filled) -> Grid:
    values = _snapshot(filled, 0.5)
    steps = len(values) - 1
    shares = (10, 50, 90)
    rows = tuple(
        (
            f"{share} % of the losses are lower",
            f"{values[round(share * steps / 100)]:.4f}",
            *(percent((share / 100) ** beta) for beta in BETAS),
        )
        for share in shares
    )
    return Grid(filled.panel.title, ("example", "loss", *(f"β = {b}" for b in BETAS)), rows)
