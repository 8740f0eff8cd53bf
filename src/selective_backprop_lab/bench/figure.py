"""Draw the findings of `bench`: where the time of an epoch goes, and the parts of a step.

The panels follow Jiang et al. 2019, arXiv:1910.00762, figures 10 and 18.
"""

import textwrap
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selective_backprop_lab.bench.harness import Findings, Row
from selective_backprop_lab.bench.tables import describe
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.report.panels import FULL, INK, SETTINGS, entitle
from selective_backprop_lab.report.styles import PHASE_COLOURS, PHASES


def draw_bench(findings: Findings, path: Path) -> None:
    """Draw stacked bars per strategy, relative to traditional training, and the parts of a step."""
    height = 1.9 + 0.34 * len(findings["strategies"])
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(FULL, height), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(2.1, 1))
        _draw_strategies(left, findings)
        _draw_step(right, findings)
        caption = "\n".join(textwrap.wrap(next(describe(findings)), 130))
        figure.supxlabel(caption, fontsize=7.5, x=0.01, ha="left")
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix[1:], dpi=160)


def _draw_strategies(axes: Axes, findings: Findings) -> None:
    strategies = findings["strategies"]
    names, shares = list(strategies), [_fitted(found) for found in strategies.values()]
    left = [0.0] * len(names)
    phases = [phase for phase in PHASES if any(share.get(phase) for share in shares)]
    for phase in phases:
        widths = [share.get(phase, 0.0) for share in shares]
        axes.barh(names, widths, left=left, height=0.7, label=phase, color=PHASE_COLOURS[phase])
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for row, found in enumerate(strategies.values()):
        limit, relative = found["limit"]["median"], found["relative"]["median"]
        axes.plot([limit] * 2, [row - 0.42, row + 0.42], color=INK, linewidth=1.2)
        end = max(left[row], limit) + 0.01
        axes.text(end, row, f" {relative:.2f}", va="center", fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel("seconds of an epoch, relative to traditional; line: the least possible")
    entitle(axes, "Where an epoch's time goes", phases, room=3.6)


def _fitted(found: Row) -> dict[str, float]:
    """Scale the medians of the phases, so that they add up to the median of the epoch."""
    scale = found["relative"]["median"] / sum(found["phases"].values())
    return {name: share * scale for name, share in found["phases"].items()}


def _draw_step(axes: Axes, findings: Findings) -> None:
    step = findings["step"]
    colours = [PHASE_COLOURS["score"], *(PHASE_COLOURS[name] for name in list(step)[1:])]
    axes.bar(range(len(step)), list(step.values()), width=0.7, color=colours)
    axes.set_xticks(range(len(step)), [name.replace(" ", "\n") for name in step], fontsize=7.5)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("milliseconds per 1,000 examples")
    axes.set_title(
        f"Backward: {findings['backward']['median']:.2f} × forward", loc="left", fontsize=9
    )
