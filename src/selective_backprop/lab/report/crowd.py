"""The static figure's panels for more arms than lines can be told apart: a row for each."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from selective_backprop.lab.analysis.grouping import Arm, Comparison
from selective_backprop.lab.analysis.statistics import Estimate, estimate, final_error, ranking
from selective_backprop.lab.report.panels import HALF, INK, draw_phases, entitle, scale_error
from selective_backprop.lab.report.styles import span, strategy_colours


def draw_crowd(errors: Axes, times: Axes, comparison: Comparison) -> None:
    """Draw every strategy's final errors, the lowest on top, and beside it where its time went.

    Args:
        errors: panel of the final errors, a dot for each length that was run.
        times: panel of the seconds of each strategy's longest runs, in the same order.
        comparison: of any number of strategies and lengths.
    """
    rows = ranking(comparison)
    _draw_errors(errors, rows, comparison)
    draw_phases(times, rows, room=HALF)
    times.set_yticks([])  # the names stand beside the errors
    times.set_ylim(errors.get_ylim())


def _draw_errors(axes: Axes, rows: Sequence[Arm], comparison: Comparison) -> None:
    colours = strategy_colours(row.name for row in rows)
    places = {row.name: place for place, row in enumerate(rows)}
    dots = {length: _dot(number) for number, length in enumerate(comparison.lengths)}
    seen = [(arm, _final(arm)) for arm in comparison.arms if arm.runs]
    for arm, error in seen:
        spread = 0.0 if error.seeds < 2 else error.half_width
        look: dict[str, Any] = {"color": colours[arm.name], "elinewidth": 1.2, "capsize": 2}
        axes.errorbar(error.mean, places[arm.name], xerr=spread, **look, **dots[arm.length])
    if comparison.baseline is not None:
        colour = colours[comparison.baseline.name]
        axes.axvline(_final(comparison.baseline).mean, color=colour, linewidth=1, dashes=(4, 3))
    names = [row.name if row.runs else f"{row.name} (unfinished)" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    reach = [end for _, error in seen if error.seeds > 1 for end in (error.low, error.high)]
    scale_error(axes, span([error.mean for _, error in seen], reach), sideways=True)
    lengths = [f"length {length.short}" for length in dots] if len(dots) > 1 else []
    for label, dot in zip(lengths, dots.values(), strict=False):
        axes.plot([], [], color=INK, linestyle="", label=label, **dot)
    entitle(axes, "Final test error (%) of whole runs", lengths, room=HALF)


def _final(arm: Arm) -> Estimate:
    return estimate([final_error(run) for run in arm.runs])


def _dot(number: int) -> dict[str, Any]:
    """Return how a length is marked: the longest filled, the others hollow and ever smaller."""
    hollow = {"markerfacecolor": "white"} if number else {}
    return {"marker": "o", "markersize": max(3.5, 6.5 - 1.5 * number), **hollow}
