"""What probes saw in runs, as a frame, and how two orders of the same examples agree."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from reproductions.drawing import curve_at
from reproductions.probes import unpack
from selective_backprop_lab.analysis.curves import Curve
from selective_backprop_lab.records.frame import each_run
from selective_backprop_lab.shapes import Float64, Int64, Shaped
from selective_backprop_lab.training.probes import Probe

Pick = Callable[[Any], float]
"""Takes one number out of a row of what a probe saw."""


def observed(runs: pd.DataFrame, probe: type[Probe]) -> pd.DataFrame:
    """Return a row for each time that a probe saw something in runs, in order: what it saw."""
    return pd.DataFrame(
        {"seed": run.seed, "progress": each.progress, **each.seen}
        for run in each_run(runs)
        for each in run.observations
        if each.probe.startswith(f"{probe.__name__}(")
    )


def picked(rows: pd.DataFrame, pick: Pick) -> pd.Series:
    """Return one number of each row."""
    return pd.Series([pick(row) for row in rows.itertuples()], index=rows.index, dtype=float)


def over_training(
    runs: pd.DataFrame, probe: type[Probe], pick: Pick, since: float = 0.0
) -> pd.Series:
    """Return the mean of a number that a probe saw, from a share of the run on, by seed."""
    rows = observed(runs, probe)
    rows = rows[rows.progress >= since]
    return picked(rows, pick).groupby(rows.seed).mean()


def follow(runs: pd.DataFrame, probe: type[Probe], pick: Pick, length: float = 100.0) -> Curve:
    """Return a number that a probe saw over runs that are so long: in per cent."""
    rows = observed(runs, probe)
    seeds = [[*values] for _, values in picked(rows, pick).groupby(rows.seed)]
    return curve_at([*(length * rows.progress[rows.seed == rows.seed.iloc[0]])], seeds)


def seen_last(runs: pd.DataFrame, probe: type[Probe], key: str) -> dict[int, Tensor]:
    """Return one number per example, as a probe saw it when a run was over, by seed."""
    rows = observed(runs, probe).dropna(subset=key)
    return {seed: unpack(text) for seed, text in zip(rows.seed, rows[key], strict=True)}


def mean_over(runs: pd.DataFrame, probe: type[Probe], key: str) -> Float64[Tensor, " example"]:
    """Return the same, averaged over seeds."""
    return torch.stack([*seen_last(runs, probe, key).values()]).double().mean(0)


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
