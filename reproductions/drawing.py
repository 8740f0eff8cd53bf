"""The parts of figures: a grid of panels, lines with their spread, bars, images and a caption."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Drawing

from reproductions.measures import Evidence, Panel, untimed
from selective_backprop_lab.analysis.estimates import Curve
from selective_backprop_lab.analysis.facts import listed, origins, seeds_of
from selective_backprop_lab.analysis.tables import percent
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.provenance import machine_of
from selective_backprop_lab.report import panels

FEW = 4  # curves whose bands do not cover each other
LEAST = 5.6  # inches of a figure, for its caption
WIDTH, HEIGHT = 4.3, 2.9  # inches of a panel with its labels
_LINE = 0.068  # height of a name beside a panel, as a share of it
_LETTERS = 16.8  # of a caption, per inch
_ROOM = 3.4  # inches for a line of a legend above a panel
_GAP, _NAME = 0.1, 0.36  # of an image's side, between two images, and for the name under one
Cell = Callable[[Axes], object]
Line = tuple[str, panels.Style, Curve]
"""A curve, drawn in a style and named where it ends; one without a name is not named."""


def sheet(
    evidence: Evidence,
    cells: Sequence[Sequence[Cell | None]],
    words: str = "",
    *,
    height: float = HEIGHT,
    width: float = WIDTH,
    **shown: Any,
) -> Drawing:
    """Draw rows of panels (None: an empty place) over a caption with options `shown`; in inches."""
    words = " ".join(filter(None, (evidence.words, words, caption(evidence, drawn=True, **shown))))
    rows, columns = len(cells), len(cells[0])
    with matplotlib.rc_context(panels.SETTINGS):
        size = max(width * columns, LEAST), height * rows + 0.6
        drawing = Drawing(figsize=size, layout="constrained")
        places = drawing.subplots(rows, columns, squeeze=False)
        for panel, cell in zip(places.flat, [cell for row in cells for cell in row], strict=True):
            if cell is None:
                panel.set_axis_off()
            else:
                cell(panel)
        lines = textwrap.wrap(words, int(_LETTERS * drawing.get_figwidth()))
        drawing.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7.5)
    return drawing


def side_by_side(
    evidence: Evidence, draw: Callable[[Axes, Panel], object], height: float = HEIGHT
) -> Drawing:
    cells: list[Cell] = [lambda axes, panel=panel: draw(axes, panel) for panel in evidence.panels]
    return sheet(evidence, in_pairs(cells), height=height)


def in_pairs(cells: Sequence[Cell | None]) -> list[list[Cell | None]]:
    """Return rows of two panels, as many as are legible on a page."""
    if len(cells) % 2 and len(cells) > 1:
        cells = [*cells, None]
    return [[*cells[at : at + 2]] for at in range(0, len(cells), 2)]


def save(drawing: Drawing, path: Path, *, svg: bool = True) -> None:
    """Write a figure as PNG, and as SVG; equal figures give equal files."""
    with matplotlib.rc_context(panels.SETTINGS):
        # Their own canvases draw once; `savefig` draws a second time to lay out alone.
        drawing.set_dpi(150)
        with replacing(path.with_suffix(".png")) as file:
            FigureCanvasAgg(drawing).print_png(file)
        if svg:
            drawing.set_layout_engine("none")  # the layout stays as it is
            with replacing(path.with_suffix(".svg")) as file:
                FigureCanvasSVG(drawing).print_svg(file, metadata={"Date": None})


def draw_lines(panel: Axes, lines: Sequence[Line], *, most: int = FEW, named: bool = False) -> None:
    """Draw curves, with bands if they are few; `named` ones are for a legend."""
    for name, style, curve in lines:
        label = name if named else None
        panels.draw_curve(panel, curve, style, width=0.75, spread=len(lines) <= most, label=label)


def finish(
    panel: Axes, title: str, lines: Sequence[Line] = (), *, legend: Any = None, **settings: Any
) -> None:
    """Set a panel's labels and limits, its title and legend, and name lines where they end."""
    panel.set(**settings)
    panel.grid(True, color=panels.FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.set_title(title, loc="left", fontsize=9)
    if legend:  # the place of one, in the words of matplotlib
        panel.legend(frameon=False, fontsize=8, loc=legend, handlelength=2.4)
    ends = [(name, style, line.x[-1], line.mean[-1]) for name, style, line in lines if name]
    panels.label_ends(panel, ends, line=_LINE)


def draw_bars(
    panel: Axes, parts: pd.DataFrame, title: str, words: str, texts: Sequence[str] = (), **look: Any
) -> None:
    """Draw a bar for each row, of or beside its columns, with a text at the end of each bar."""
    parts.plot.barh(ax=panel, legend=False, **look)
    for row, (end, text) in enumerate(zip(parts.sum(axis=1), texts, strict=False)):
        panel.text(end, row, f" {text}", va="center", fontsize=8, color=panels.INK)
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()
    panel.set(xlabel=words, ylabel="", xlim=(0, max(panel.get_xlim()[1] * 1.12, 1e-3)))
    panels.entitle(panel, title, [*parts], room=_ROOM)


def draw_images(panel: Axes, data: LabData, indices: Sequence[int], title: str) -> None:
    side, columns = data.image_size, (len(indices) + 1) // 2
    across, down = round((1 + _GAP) * side), round((1 + _GAP + _NAME) * side)
    canvas = torch.full((2 * down, columns * across, 3), 255, dtype=torch.uint8)
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.5}
    for place, index in enumerate(indices):
        top, left = place // columns * down, place % columns * across
        image = data.train_inputs[index].expand(3, -1, -1).permute(1, 2, 0)
        canvas[top : top + side, left : left + side] = image
        name = data.class_names[int(data.train_labels[index])].replace("_", " ")
        panel.text(left + side / 2, top + (1.05 + _NAME / 2) * side, name, **look)
    panel.imshow(canvas.numpy(), interpolation="nearest")
    panel.set_axis_off()
    panel.set_title(title, loc="left", fontsize=9)


def caption(
    evidence: Evidence, *, lines: Sequence[int] = (), timed: bool = False, drawn: bool = False
) -> str:
    """Say data, nets, lengths and seeds of a figure, the spread over seeds, and origins.

    `lines` has the number of curves in each panel; `timed` says that wall seconds are drawn. Under
    a figure that is `drawn`, its page has machines, code and what is missing.
    """
    seeds, said = sorted(set(evidence.runs.seed)), dict.fromkeys(map(describe, evidence.panels))
    parts = [f"{'; '.join(said)}."] if said else []
    if seeds:
        parts.append(f"Seed{'s' if len(seeds) > 1 else ''} {seeds_of(seeds)}.")
    if lines and len(seeds) < 2:
        parts.append("One seed, so the spread over seeds is unknown.")
    elif lines:
        bands, table = "bands are 95 % t-intervals", "the table has their intervals"
        spread = bands if max(lines) <= FEW else table
        if min(lines) <= FEW < max(lines):
            spread = f"{bands}, and for panels without bands {table}"
        parts.append(f"Lines are means over seeds; {spread}.")
    if timed and untimed(evidence.runs):
        parts.append("Runs shared a GPU or changed machines: their seconds cannot be compared.")
    elif timed:
        parts.append("Runs were interleaved; wall seconds depend on what else the machine did.")
    return " ".join([*parts, *([] if drawn else [*_origins(evidence), *evidence.missing])])


def describe(panel: Panel) -> str:
    setting, recipe = panel.setting, panel.setting.recipe
    amount = "all" if setting.limit is None else f"{setting.limit:,}"
    real = setting.title.startswith(setting.published.data)
    stands = "" if real else f" (in place of {setting.published.data})"
    selective = (arm for arm in panel.arms if arm.key.split(" ")[0] in {"sb", "stale"})
    rates = {arm.plan.settings.rate for arm in selective}
    learning = {arm.plan.recipe.learning_rate for arm in panel.arms}
    return (
        f"{setting.title}{stands}: {amount} training examples, {recipe.model}, "
        f"{recipe.epochs} epochs, batch {recipe.batch_size}"
        + (f", learning rate {min(learning):g}" if len(learning) == 1 else ", tuned learning rates")
        + (f", {percent(min(rates))} selectivity" if len(rates) == 1 else "")
    )


def _origins(evidence: Evidence) -> Iterable[str]:
    runs, timings = evidence.runs, evidence.timings
    machines = dict.fromkeys([*runs.machine, *(machine_of(each.hardware) for each in timings)])
    codes = dict.fromkeys([*runs.code, *(each.code_version for each in timings)])
    if machines:  # several versions of the code of runs are named below
        code = "" if runs.code.nunique() > 1 else f"; code {listed(codes)}"
        yield f"{listed(machines)}{code}."
    apart = [line for panel in evidence.panels for line in origins(panel.runs)]
    if apart or len(evidence.panels) < 2:
        yield from origins(runs)
    elif runs.machine.nunique() > 1 or runs.code.nunique() > 1:
        yield f"Panels differ in machine or code ({listed(codes)}): compare seconds within one."
