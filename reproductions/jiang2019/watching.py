"""What probes saw, followed over the runs of an arm."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes

from reproductions.jiang2019.drawing import FEW
from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.analysis.statistics import Estimate, estimate
from selective_backprop.lab.records.schema import Observation, Run
from selective_backprop.lab.report.panels import DASHES, FAINT, label_ends
from selective_backprop.lab.report.styles import Style

Pick = Callable[[Mapping[str, Any]], float]
"""Takes one number out of what a probe saw."""


@dataclass(frozen=True)
class Series:
    """A number over training, in per cent of the run, averaged over seeds."""

    name: str
    style: Style
    x: tuple[float, ...]
    y: tuple[Estimate, ...]


def looks(run: Run, probe: str) -> list[Observation]:
    """Return what a probe saw, in order; its words begin as said."""
    return [each for each in run.observations if each.probe.startswith(probe)]


def follow(name: str, style: Style, arm: Arm, probe: str, pick: Pick) -> Series:
    """Return a number that a probe saw at each look."""
    rows = [[pick(each.seen) for each in looks(run, probe)] for run in arm.runs]
    x = [100 * each.progress for each in looks(arm.runs[0], probe)]
    return Series(
        name, style, tuple(x), tuple(estimate(column) for column in zip(*rows, strict=True))
    )


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
    for each in shown:
        means = [value.mean for value in each.y]
        panel.plot(
            each.x,
            means,
            color=each.style.colour,
            linestyle=DASHES[each.style.dash],
            linewidth=0.75 * each.style.width,
        )
        if len(shown) <= FEW and all(math.isfinite(value.half_width) for value in each.y):
            low, high = [value.low for value in each.y], [value.high for value in each.y]
            panel.fill_between(each.x, low, high, color=each.style.colour, alpha=0.13, linewidth=0)
    means = [value.mean for each in shown for value in each.y]
    room = 0.25 * (max(means) - min(means)) or 0.1
    panel.set_ylim(*(limits or (min(means) - room, min(max(means) + room, most))))
    panel.set_xlim(0, 100)
    panel.set_xlabel("% of the run")
    panel.grid(True, color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
    ends = [(each.name, each.style, each.x[-1], each.y[-1].mean) for each in shown]
    label_ends(panel, [end for end in ends if end[0]], line=0.068)
