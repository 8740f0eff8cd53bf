"""What all figures have in common: a grid of panels, lines with their spread, and a caption."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Drawing

from reproductions.figures import Found, PanelData, PanelSpec
from reproductions.timing import StepTimes
from selective_backprop.lab.analysis.grouping import RunGroup
from selective_backprop.lab.analysis.run_summary import listed, machine_of, origins, seeds_of
from selective_backprop.lab.analysis.statistics import Axis, Estimate, estimate
from selective_backprop.lab.analysis.tables import percent
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.records.schema import Observation, Run
from selective_backprop.lab.report.panels import DASHES, FAINT, SETTINGS, label_ends
from selective_backprop.lab.report.styles import Style
from selective_backprop.lab.runner.run_store import load_data

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
LINE = 0.068  # height of a name beside a panel, as a share of it
_LETTERS = 16.8  # of a caption, per inch
_GAP, _NAME = 0.1, 0.36  # of an image's side, between two images, and for the name under one
Cell = Callable[[Axes], object]
Pick = Callable[[Mapping[str, Any]], float]
"""Takes one number out of what a probe saw."""
End = tuple[str, Style, float, float]
"""A line's name and style, and the place where it ends."""


def sheet(cells: Sequence[Sequence[Cell | None]], words: str, *, height: float = HEIGHT) -> Drawing:
    """Draw a grid of panels, and words under them.

    Args:
        cells: rows of what draws into a panel; None for a place without one.
        words: the caption.
        height: of a row, in inches.
    """
    rows, columns = len(cells), len(cells[0])
    with matplotlib.rc_context(SETTINGS):
        size = max(WIDTH * columns, LEAST), height * rows + 0.6
        drawing = Drawing(figsize=size, layout="constrained")
        panels = drawing.subplots(rows, columns, squeeze=False)
        for panel, cell in zip(panels.flat, [cell for row in cells for cell in row], strict=True):
            if cell is None:
                panel.set_axis_off()
            else:
                cell(panel)
        lines = textwrap.wrap(words, int(_LETTERS * drawing.get_figwidth()))
        drawing.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7.5)
    return drawing


def save(drawing: Drawing, path: Path, *, svg: bool = True) -> None:
    """Write a figure as PNG, and as SVG; equal figures give equal files."""
    with matplotlib.rc_context(SETTINGS):
        # Their own canvases draw once; `savefig` draws a second time to lay out alone.
        drawing.set_dpi(150)
        FigureCanvasAgg(drawing).print_png(path.with_suffix(".png"))
        if svg:
            drawing.set_layout_engine("none")  # what was laid out stays where it is
            FigureCanvasSVG(drawing).print_svg(path.with_suffix(".svg"), metadata={"Date": None})


def entitled(panel: Axes, title: str) -> None:
    """Write a title above a panel."""
    panel.set_title(title, loc="left", fontsize=9)


def ruled(panel: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Draw faint lines behind what a panel shows."""
    panel.grid(True, axis=axis, color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)


def draw_line(
    panel: Axes,
    x: Sequence[float],
    mean: Sequence[float],
    style: Style,
    band: tuple[Sequence[float], Sequence[float]] | None = None,
    **looks: Any,
) -> None:
    """Draw a line, and the band between its lower and its upper ends where there is one."""
    dash, width = DASHES[style.dash], 0.75 * style.width
    panel.plot(x, mean, color=style.colour, linestyle=dash, linewidth=width, **looks)
    if band is not None:
        panel.fill_between(x, *band, color=style.colour, alpha=0.13, linewidth=0)


def draw_whiskers(
    panel: Axes, x: Sequence[float], y: Sequence[Estimate], style: Style, **looks: Any
) -> None:
    """Draw a line through means, each with its interval."""
    panel.errorbar(
        x,
        [each.mean for each in y],
        yerr=[spread_of(each) for each in y],
        color=style.colour,
        linestyle=DASHES[style.dash],
        linewidth=0.75 * style.width,
        **looks,
    )


def spread_of(found: Estimate) -> float:
    """Return half of what an interval is wide, to be drawn; 0 where that is unknown."""
    return found.half_width if math.isfinite(found.half_width) else 0.0


def thousands(value: float, _: int = 0) -> str:
    """Return a tick's number, with k for thousands and M for millions."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


@dataclass(frozen=True)
class Series:
    """A number that a probe saw over training, in per cent of the run, averaged over seeds."""

    name: str
    style: Style
    x: Sequence[float]
    y: Sequence[Estimate]


def looks(run: Run, probe: str) -> list[Observation]:
    """Return what a probe saw, in order; its words begin as said."""
    return [each for each in run.observations if each.probe.startswith(probe)]


def follow(name: str, style: Style, arm: RunGroup, probe: str, pick: Pick) -> Series:
    """Return a number that a probe saw at each look."""
    rows = [[pick(each.seen) for each in looks(run, probe)] for run in arm.runs]
    x = [100 * each.progress for each in looks(arm.runs[0], probe)]
    return Series(name, style, x, [estimate(column) for column in zip(*rows, strict=True)])


def over_training(probe: str, pick: Pick) -> Callable[[Run], float]:
    """Return what takes the mean of a number over all looks of a run."""
    return lambda run: fmean(pick(each.seen) for each in looks(run, probe))


def draw_series(
    panel: Axes,
    shown: Sequence[Series],
    *,
    limits: tuple[float, float] | None = None,
    most: float = math.inf,
) -> None:
    """Draw numbers over training, each named where it ends; bands where there are few.

    Args:
        panel: where to.
        shown: what; one without a name is not named.
        limits: of the axis; None for those of the means, and some of their bands.
        most: that such a number can be.
    """
    few = len(shown) <= FEW
    for each in shown:
        known = few and all(math.isfinite(value.half_width) for value in each.y)
        band = [value.low for value in each.y], [value.high for value in each.y]
        mean = [value.mean for value in each.y]
        draw_line(panel, each.x, mean, each.style, band if known else None)
    means = [value.mean for each in shown for value in each.y]
    room = 0.25 * (max(means) - min(means)) or 0.1
    panel.set_ylim(*(limits or (min(means) - room, min(max(means) + room, most))))
    panel.set_xlim(0, 100)
    panel.set_xlabel("% of the run")
    ruled(panel)
    named = [each for each in shown if each.name]
    ends = [(each.name, each.style, each.x[-1], each.y[-1].mean) for each in named]
    label_ends(panel, ends, line=LINE)


def images_of(found: Found, shown: PanelData) -> ImageData:
    """Return the data set that a panel was trained on."""
    setting = shown.panel.setting
    return load_data(setting.recipe.data, found.root, setting.limit)


def draw_images(panel: Axes, data: ImageData, indices: Sequence[int], title: str) -> None:
    """Draw training images in two rows, each with the name of its class."""
    side, columns = data.image_size, (len(indices) + 1) // 2
    across, down = round((1 + _GAP) * side), round((1 + _GAP + _NAME) * side)
    canvas = torch.full((2 * down, columns * across, 3), 255, dtype=torch.uint8)
    for place, index in enumerate(indices):
        top, left = place // columns * down, place % columns * across
        image = data.train_images[index].expand(3, -1, -1).permute(1, 2, 0)
        canvas[top : top + side, left : left + side] = image
        panel.text(
            left + side / 2,
            top + (1.05 + _NAME / 2) * side,
            data.class_names[int(data.train_labels[index])].replace("_", " "),
            ha="center",
            va="center",
            fontsize=6.5,
        )
    panel.imshow(canvas.numpy(), interpolation="nearest")
    panel.set_axis_off()
    entitled(panel, title)


def caption(found: Found, *, curves: bool = False, timed: bool = False) -> str:
    """Say what a figure shows: data, nets, lengths, seeds, spread, machine and code.

    Args:
        found: what is shown.
        curves: whether as lines with their spread.
        timed: whether wall seconds are shown.
    """
    seeds = sorted({run.header.seed for run in found.runs})
    parts = []
    if found.panels:
        parts = ["; ".join(dict.fromkeys(describe(each.panel) for each in found.panels)) + "."]
    if seeds:
        parts.append(f"Seed{'s' if len(seeds) > 1 else ''} {seeds_of(seeds)}.")
    if curves and len(seeds) < 2:
        parts.append("One seed: the spread over seeds is unknown.")
    elif curves:
        few = max(len(each.pairs) for each in found.panels) <= FEW
        parts.append(
            f"Lines: mean over seeds; {'bands' if few else 'bars at the ends'}: 95 % t-interval."
        )
    if timed:
        parts.append("Runs took turns: wall seconds depend on what else the machine did.")
    return " ".join([*parts, *made_on(found.runs, found.timings), *found.missing])


def describe(panel: PanelSpec) -> str:
    """Say data, net, length and selectivity of a panel."""
    setting, recipe = panel.setting, panel.setting.recipe
    amount = "all" if setting.limit is None else f"{setting.limit:,}"
    real = setting.title.startswith(setting.paper_data)
    stands = "" if real else f" (in place of {setting.paper_data})"
    selective = [entry for entry in panel.entries if entry.key in {"sb", "stale"}]
    rates = {entry.plan.settings.rate for entry in selective}
    return (
        f"{setting.title}{stands}: {amount} training examples, {recipe.model}, "
        f"{recipe.epochs} epochs, batch {recipe.batch_size}"
        + (f", {percent(min(rates))} selectivity" if len(rates) == 1 else "")
    )


def made_on(runs: Sequence[Run], timings: Sequence[StepTimes] = ()) -> list[str]:
    """Say which machines and which code records come from, and what differs between them."""
    made = [(run.header.hardware, run.header.code_version) for run in runs]
    made += [(timing.hardware, timing.code_version) for timing in timings]
    if not made:
        return []
    machines = listed(dict.fromkeys(machine_of(machine) for machine, _ in made))
    code = listed(dict.fromkeys(code for _, code in made))
    return [f"{machines}; code {code}.", *origins(runs)]
