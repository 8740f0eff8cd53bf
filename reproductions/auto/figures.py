"""The figures of the study: errors against cost and CPU seconds, and the performance profile."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Scale
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from reproductions import drawing
from reproductions.auto.protocol import ORDER, OURS
from reproductions.auto.results import Results
from selective_backprop_lab.analysis.grouping import BASELINE
from selective_backprop_lab.analysis.profile import performance_profile
from selective_backprop_lab.analysis.statistics import AXIS_LABELS, Axis, mean_at_end
from selective_backprop_lab.report.panels import scale_error
from selective_backprop_lab.report.styles import Style, span, strategy_colours

_MOST = 1.3  # times the lowest error, up to which a profile is drawn
_ASIDE = 0.02  # by which points of one length are moved apart, as a share of their place


def draw_workload(results: Results, caption: str) -> Drawing:
    """Draw where runs end over passes and over CPU seconds, traditional training as a curve."""
    axes: tuple[Axis, Axis] = ("cost", "cpu_seconds")
    cells: list[drawing.Cell | None] = [
        partial(_draw_ends, results=results, axis=axis, named=axis == axes[-1]) for axis in axes
    ]
    return drawing.sheet([cells], caption, height=3.4)


def _draw_ends(panel: Axes, results: Results, axis: Axis, named: bool) -> None:
    colours = strategy_colours([BASELINE, *results.arms])
    shown = [BASELINE, *results.arms]
    means, ends = [], []
    for i, arm in enumerate(shown):
        groups = sorted(
            (g for (name, _), g in results.groups.items() if name == arm), key=lambda g: g.length
        )
        errors = [results.error(arm, group.length.value) for group in groups]
        aside = 1.0 if arm == BASELINE or axis != "cost" else 1 + _ASIDE * (i - len(shown) / 2)
        places = [aside * mean_at_end(group, axis) for group in groups]
        means += [error.mean for error in errors]
        ends += [end for error in errors for end in error.ends]
        panel.errorbar(
            places,
            [error.mean for error in errors],
            yerr=[drawing.spread_of(error) for error in errors],
            color=colours[arm],
            linestyle="-" if arm == BASELINE else "",
            linewidth=1.6,
            elinewidth=0.8,
            marker="*" if arm == OURS else "o",
            markersize=9 if arm == OURS else 4,
            zorder=3 if arm == OURS else 2,
            label=arm,
        )
    scale_error(panel, span(means, ends))
    panel.set_yscale("log")
    panel.set_xscale("log")
    _plain(panel.yaxis, (1, 1.5, 2, 3, 5, 7))
    _plain(panel.xaxis, (1, 2, 5))
    panel.set(xlabel=AXIS_LABELS[axis], ylabel=results.workload.unit)
    title = f"{results.workload.title}, {'passes' if axis == 'cost' else 'CPU seconds'}"
    drawing.framed(panel, title)
    if named:
        panel.legend(frameon=False, fontsize=7.5, loc="center left", bbox_to_anchor=(1.0, 0.5))


def draw_profile(shown: Sequence[Results]) -> Drawing:
    """Draw in which share of the cells each strategy is within a factor of the lowest error."""
    cells = [(each, length) for each in shown for length in each.lengths]
    arms = [arm for arm in ORDER if any((arm, length) in each.groups for each, length in cells)]
    errors = np.array([[each.error(arm, length).mean for arm in arms] for each, length in cells])
    factors = np.linspace(1.0, _MOST, 301)
    shares = 100 * performance_profile(errors.reshape(len(cells), len(arms)), factors)
    colours = strategy_colours(arms)

    def draw(panel: Axes) -> None:
        lines: list[drawing.Line] = []
        for arm, own in zip(arms, shares.tolist(), strict=True):
            style = Style(colours[arm], "solid", 3.2 if arm == OURS else 2.0)
            lines.append((arm, style, drawing.curve_at(factors.tolist(), [own])))
        panel.set(xlim=(1.0, _MOST), ylim=(0, 103))
        panel.set(xlabel="times the lowest error", ylabel="share of cells (%)")
        drawing.draw_named(panel, "At most so much above the best", lines, most=0)

    words = (
        f"Performance profile over {len(cells)} cells, a workload at a length each: the share in "
        "which a strategy's mean error is at most so many times the lowest of all."
    )
    return drawing.sheet([[draw]], words, height=3.4)


def _plain(axis: Scale, subs: Sequence[float]) -> None:
    axis.set_major_locator(LogLocator(base=10, subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
