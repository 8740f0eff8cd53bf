"""What a strategy is likely worth on some data: what it was worth on data like them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from selective_backprop._core.types import Float
from selective_backprop.guide._data_traits import DataTraits

RECORD = "worths.json"  # made of the study's records by `docs/evidence.py`
MOST = 8.0  # a worth above, or below its inverse, counts as this
UNLIKE = 1.0  # distance from which on a workload says nothing
# What makes a distance of 1: a share that repeats, one that nearly repeats, a share of classes that
# are none in effect, a share of wrong labels, and doublings of the training's length.
SCALES = {"copies": 0.5, "near-copies": 0.5, "skew": 0.5, "wrong": 0.1, "doublings": 4.0}
WIDTHS = (0.15, 0.2, 0.3, 0.4, 0.6, 0.8)  # of what counts as like: one of them predicts best
HELD = 0.8  # share of the cells that were left out whose worth the interval holds

Place = Float[np.ndarray, " scale"]


@dataclass(frozen=True)
class WorthForecast:
    """How many times more traditional training a strategy would equal.

    Attributes:
        times: the forecast; 1 is traditional training of the same length.
        low: where an interval begins that held four of five worths of workloads that were left
            out.
        high: where it ends.
        like: the workloads on record that count most, the nearest first.
    """

    times: float
    low: float
    high: float
    like: tuple[str, ...]


def place_of(traits: Mapping[str, Any], passes: float | None) -> Place:
    """Return where data of some traits lie; what is not known of them counts as 0.

    Args:
        traits: those of `DataTraits`, by name.
        passes: over the data, in the whole training; NaN in the place for None.
    """
    copies = traits["copies"] or 0.0
    near = max(0.0, (traits["near_copies"] or 0.0) - copies)
    skew = 1 - traits["effective_classes"] / traits["classes"] if traits["classes"] else 0.0
    wrong = traits["wrong_labels"] or 0.0
    doublings = math.nan if passes is None else math.log2(passes)
    return np.array([copies, near, skew, wrong, doublings]) / [*SCALES.values()]


def forecast_worth(
    strategy: str, traits: DataTraits, passes: float | None = None
) -> WorthForecast | None:
    """Return what a strategy is likely worth at equal passes.

    It is None if the strategy is on record for no data like these. What has no classes is like
    nothing on record.

    Args:
        strategy: its name.
        traits: of the user's data.
        passes: over the data, in the whole training; None if that is unknown.
    """
    record = _record()
    cells = [cell for cell in record["cells"] if strategy in cell["worth"]]
    factor = record["factors"].get(strategy)
    if not cells or factor is None or traits.classes is None:
        return None
    known = place_of(vars(traits), passes)
    weights = _weights(known, [cell["place"] for cell in cells], record["width"])
    if not weights.any():
        return None
    times = math.exp(_mean([cell["worth"][strategy] for cell in cells], weights))
    nearest = [cells[at]["workload"] for at in np.argsort(-weights, kind="stable")]
    return WorthForecast(times, times / factor, times * factor, tuple(dict.fromkeys(nearest))[:3])


def fit(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record that forecasts are made by: cells, the best width, and how well it does.

    Args:
        cells: each with its `workload`, its `place` and the `worth` of strategies by name.
    """
    errors = {width: _errors(cells, width) for width in WIDTHS}
    mean = {
        width: np.mean([e for each in found.values() for e in each])
        for width, found in errors.items()
    }
    width = min(mean, key=mean.__getitem__)
    best, usual = errors[width], _errors(cells, math.inf)
    return {
        "width": width,
        "factors": {name: math.exp(np.quantile(each, HELD)) for name, each in best.items()},
        "typical": {name: math.exp(np.median(each)) for name, each in best.items()},
        "typical_of_means": {name: math.exp(np.median(each)) for name, each in usual.items()},
        "cells": list(cells),
    }


def _errors(cells: Sequence[Mapping[str, Any]], width: float) -> dict[str, list[float]]:
    """Return by how much forecasts miss each workload, made of the others, in logarithms."""
    found: dict[str, list[float]] = {}
    for cell, forecasts in zip(cells, held_out(cells, width), strict=True):
        for name, times in forecasts.items():
            miss = abs(math.log(times) - _log(cell["worth"][name]))
            found.setdefault(name, []).append(miss)
    return found


def held_out(cells: Sequence[Mapping[str, Any]], width: float) -> list[dict[str, float]]:
    """Return what would be forecast for each cell by the other workloads, by strategy.

    With an infinite width it is the others' mean.
    """
    found = []
    for cell in cells:
        others = [each for each in cells if each["workload"] != cell["workload"]]
        forecasts = {}
        for name in cell["worth"]:
            same = [each for each in others if name in each["worth"]]
            weights = _weights(np.array(cell["place"]), [e["place"] for e in same], width)
            if weights.any():
                forecasts[name] = math.exp(_mean([e["worth"][name] for e in same], weights))
        found.append(forecasts)
    return found


def _weights(
    known: Place, places: Sequence[Sequence[float]], width: float
) -> Float[np.ndarray, " place"]:
    """Return how much each place counts, by its distance; 0 where it is too far to say anything."""
    if math.isinf(width):
        return np.ones(len(places))
    squares = np.square(np.nan_to_num(np.array(places) - known)).sum(1)
    return np.where(squares < UNLIKE**2, np.exp(-squares / (2 * width**2)), 0.0)


def _mean(worths: Sequence[float], weights: Float[np.ndarray, " place"]) -> float:
    return float(np.average([_log(each) for each in worths], weights=weights))


def _log(times: float) -> float:
    return float(np.clip(math.log(times), -math.log(MOST), math.log(MOST)))


@cache
def _record() -> dict[str, Any]:
    """Return what is on record."""
    file = resources.files("selective_backprop.guide") / RECORD
    return json.loads(file.read_text(encoding="utf-8"))
