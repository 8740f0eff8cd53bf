"""What all figures have in common: panels side by side, curves, and a caption under the axes."""

import math
import textwrap
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from reproductions.jiang2019.items import Filled, Found, Panel
from reproductions.jiang2019.text import percent
from selective_backprop.lab.analysis.run_summary import listed, machine_of, origins, seeds_of
from selective_backprop.lab.analysis.statistics import Axis, curve
from selective_backprop.lab.report.panels import DASHES, SETTINGS, label_ends, scale_error
from selective_backprop.lab.report.styles import Style, span

AXIS_LABELS: dict[Axis, str] = {
    "cost": "cost, in epochs of traditional training",
    "seconds": "wall seconds, evaluation left out",
    "cpu_seconds": "CPU seconds, evaluation left out",
    "updates": "updates of the net",
    "trained": "images backpropagated",
    "forwards": "forward passes, in images",
}
FEW = 4  # curves whose bands do not cover each other
LEAST = 5.6  # inches of a figure, for its caption
WIDTH, HEIGHT = 4.3, 2.9  # inches of a panel with its labels
_LETTERS = 16.8  # of a caption, per inch
_SELECTIVE = {"sb", "stale"}
_WHISKER: dict[str, Any] = {"elinewidth": 1.0, "capsize": 2.0}


@contextmanager
def sheet(
    rows: int, columns: int, *, height: float = HEIGHT
) -> Generator[tuple[Figure, list[list[Axes]]]]:
    """Give a figure with a grid of panels, in the looks that all figures share."""
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(
            figsize=(max(WIDTH * columns, LEAST), height * rows + 0.6), layout="constrained"
        )
        yield figure, figure.subplots(rows, columns, squeeze=False).tolist()


def draw_curves(found: Found, axes: Sequence[Axis]) -> Figure:
    """Draw error along each axis: a row for each, a column for each panel.

    Args:
        found: panels with at least one finished run each.
        axes: what error is drawn against.
    """
    with sheet(len(axes), len(found.panels)) as (figure, grid):
        for row, axis in zip(grid, axes, strict=True):
            for panel, filled in zip(row, found.panels, strict=True):
                draw_panel(panel, filled, axis)
            row[0].set_ylabel("test error (%)")
        for panel, filled in zip(grid[0], found.panels, strict=True):
            panel.set_title(filled.panel.title, loc="left", fontsize=9)
        under(figure, caption(found, curves=True, timed="seconds" in axes))
    return figure


def draw_panel(panel: Axes, filled: Filled, axis: Axis) -> None:
    """Draw the error of a panel's entries along an axis, each named where it ends."""
    ends: list[tuple[str, Style, float, float]] = []
    means: list[float] = []
    for entry, arm in filled.pairs:
        line, style = curve(arm.runs, axis), entry.style
        panel.plot(
            line.x,
            line.mean,
            color=style.colour,
            linestyle=DASHES[style.dash],
            linewidth=0.75 * style.width,
        )
        if len(filled.pairs) <= FEW:
            panel.fill_between(
                line.x, line.low, line.high, color=style.colour, alpha=0.13, linewidth=0
            )
        elif math.isfinite(line.low[-1]):
            ends_at = [[line.mean[-1] - line.low[-1]], [line.high[-1] - line.mean[-1]]]
            panel.errorbar(line.x[-1], line.mean[-1], yerr=ends_at, **_WHISKER, color=style.colour)
        means += line.mean
        ends.append((entry.label, style, line.x[-1], line.mean[-1]))
    panel.set_xlabel(AXIS_LABELS[axis])
    panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter(FuncFormatter(thousands))
    panel.locator_params(axis="x", nbins=5)
    scale_error(panel, span(means))
    label_ends(panel, ends, line=0.068)


def thousands(value: float, _: int) -> str:
    """Return a tick's number, with k for thousands and M for millions."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def under(figure: Figure, text: str) -> None:
    """Write a caption under the axes."""
    width = int(_LETTERS * figure.get_figwidth())
    figure.supxlabel("\n".join(textwrap.wrap(text, width)), x=0.01, ha="left", fontsize=7.5)


def caption(found: Found, *, curves: bool = False, timed: bool = False) -> str:
    """Say what a figure shows: data, nets, lengths, seeds, spread, machine and code.

    Args:
        found: what is shown.
        curves: whether as lines with their spread.
        timed: whether wall seconds are shown.
    """
    runs = found.runs
    seeds = sorted({run.header.seed for run in runs})
    parts = []
    if found.panels:
        parts = ["; ".join(dict.fromkeys(describe(each.panel) for each in found.panels)) + "."]
    if seeds:
        parts.append(f"Seed{'s' if len(seeds) > 1 else ''} {seeds_of(seeds)}.")
    if curves:
        parts.append(_spread(len(seeds), max(len(each.pairs) for each in found.panels)))
    if timed:
        parts.append("Runs took turns: wall seconds depend on what else the machine did.")
    parts += [*_made(found), *found.missing]
    return " ".join(part for part in parts if part)


def describe(panel: Panel) -> str:
    """Say data, net, length and selectivity of a panel."""
    setting, recipe = panel.setting, panel.setting.recipe
    amount = "all" if setting.limit is None else f"{setting.limit:,}"
    stands = ""
    if not setting.title.startswith(setting.paper_data):
        stands = f" (in place of {setting.paper_data})"
    return (
        f"{setting.title}{stands}: {amount} training examples, {recipe.model}, "
        f"{recipe.epochs} epochs, batch {recipe.batch_size}{_selectivity(panel)}"
    )


def _selectivity(panel: Panel) -> str:
    rates = {entry.plan.settings.rate for entry in panel.entries if entry.key in _SELECTIVE}
    return f", {percent(min(rates))} selectivity" if len(rates) == 1 else ""


def _spread(seeds: int, curves: int) -> str:
    if seeds < 2:
        return "One seed: the spread over seeds is unknown."
    shown = "bands" if curves <= FEW else "bars at the ends"
    return f"Lines: mean over seeds; {shown}: 95 % t-interval."


def _made(found: Found) -> Iterator[str]:
    runs = found.runs
    machines = [machine_of(run.header.hardware) for run in runs]
    machines += [machine_of(timing.hardware) for timing in found.timings]
    code = [run.header.code_version for run in runs]
    code += [timing.code_version for timing in found.timings]
    if machines:
        yield f"{listed(dict.fromkeys(machines))}; code {listed(dict.fromkeys(code))}."
    yield from origins(runs)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG and as SVG; equal figures give equal files."""
    with matplotlib.rc_context(SETTINGS):
        # Their own canvases draw once; `savefig` draws a second time to lay out alone.
        figure.set_dpi(150)
        FigureCanvasAgg(figure).print_png(path.with_suffix(".png"))
        figure.set_layout_engine("none")  # what was laid out stays where it is
        FigureCanvasSVG(figure).print_svg(path.with_suffix(".svg"), metadata={"Date": None})
