"""What probes saw in runs, and how two orders of the same examples agree."""

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float64, Int64, Shaped
from torch import Tensor

from reproductions.drawing import curve_at
from reproductions.probes import unpack
from selective_backprop_lab.analysis.grouping import RunGroup
from selective_backprop_lab.analysis.statistics import Curve
from selective_backprop_lab.records.schema import Observation, Run

Pick = Callable[[Mapping[str, Any]], float]
"""Takes one number out of what a probe saw."""


def looks(run: Run, probe: str) -> list[Observation]:
    """Return what a probe saw, in order; its words begin as said."""
    return [each for each in run.observations if each.probe.startswith(probe)]


def follow(arm: RunGroup, probe: str, pick: Pick, length: float = 100.0) -> Curve:
    """Return a number that a probe saw at each look of a run that is so long: in per cent."""
    rows = [[pick(each.seen) for each in looks(run, probe)] for run in arm.runs]
    return curve_at([length * each.progress for each in looks(arm.runs[0], probe)], rows)


def over_training(probe: str, pick: Pick, since: float = 0.0) -> Callable[[Run], float]:
    """Return what takes the mean of a number over a run's looks from a share of it on."""

    def mean(run: Run) -> float:
        return fmean(pick(each.seen) for each in looks(run, probe) if each.progress >= since)

    return mean


def seen_last(run: Run, probe: str, key: str) -> Int64[Tensor, " example"]:
    """Return one number per example, as a probe saw it when the run was over."""
    (found,) = (each.seen[key] for each in looks(run, probe) if key in each.seen)
    return unpack(found)


def mean_over(runs: tuple[Run, ...], probe: str, key: str) -> Float64[Tensor, " example"]:
    """Return the same, averaged over seeds."""
    return torch.stack([seen_last(run, probe, key) for run in runs]).double().mean(0)


def lowest(values: Shaped[Tensor, " example"], share: float) -> Float64[Tensor, " example"]:
    """Return to what part each example is among a share, in (0, 1], with the lowest values.

    Examples that tie at the edge share what room is left, so that nothing hangs on their order.
    """
    room = max(1, round(share * len(values)))
    edge = values.kthvalue(room).values
    below, at = values < edge, values == edge
    return below.double() + at.double() * ((room - below.sum()) / at.sum())


def overlap(
    one: Shaped[Tensor, " example"], other: Shaped[Tensor, " example"], share: float
) -> float:
    """Return which part of the lowest of one is among the lowest of the other, in per cent.

    Orders that know nothing of each other overlap by the share itself.
    """
    mine, theirs = lowest(one, share), lowest(other, share)
    return 100 * float((mine * theirs).sum() / mine.sum())


def standing(values: Shaped[Tensor, " example"]) -> Float64[Tensor, " example"]:
    """Return how many values are lower than each, half of those that are equal included."""
    ordered = values.sort().values
    lower = torch.searchsorted(ordered, values)
    return (lower + torch.searchsorted(ordered, values, right=True)).double() / 2


def by_class(
    values: Shaped[Tensor, " example"], labels: Int64[Tensor, " example"], classes: int
) -> list[float]:
    """Return the mean value of each class."""
    sums = torch.zeros(classes, dtype=torch.float64).index_add_(0, labels, values.double())
    return (sums / labels.bincount(minlength=classes).clamp(min=1)).tolist()
