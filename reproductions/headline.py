"""The paper's headline in four lines, from the records alone, or beside a short training anew."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from rich.console import Console

from reproductions import training
from reproductions.evidence import Panel
from reproductions.jiang2019.scales import SCALES, ScaleName
from reproductions.jiang2019.times import log_speed
from reproductions.measures import final_difference
from reproductions.papers import (
    COMMITTED,
    FIGURES,
    PaperOrder,
    committed,
    gather,
    limited,
    reproduce,
)
from selective_backprop_lab.analysis.estimates import estimate
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.data.folders import make_folder

_ITEMS = ("fig-7", "table-1")
_LIVE = ("traditional", "sb", "shortened")  # on MNIST, a few minutes


def headline(console: Console, out: Path) -> None:
    """Print what the paper says and what is on record, and draw figure 7 and table 1."""
    saturated, full, gpu = (
        _panels(scale) for scale in (ScaleName.SATURATED, ScaleName.CIFAR10, ScaleName.GPU)
    )
    reported = FIGURES["fig-7"].reported
    said = f"The paper: “{reported.quotes['cifar10'].text}” ({reported.quotes['cifar10'].section})."
    lines = [
        said,
        f"At saturation, in cost: SB against Traditional {_each(saturated, 'sb', 'traditional')}; "
        f"Stale-SB against SB {_each(saturated, 'stale', 'sb')}.",
        f"Where little is learned: SB ends {_behind([*full, *gpu[:1]])} above Traditional.",
        "A schedule shortened to a third: against Traditional "
        f"{_each(saturated, 'third', 'traditional')}; SB against it "
        f"{_each(saturated, 'sb', 'third')}.",
    ]
    order = committed(COMMITTED / ScaleName.SATURATED)
    make_folder(out)
    order = replace(order, out=out, records_in=order.folder)
    reproduce(Console(quiet=True), [FIGURES[name] for name in _ITEMS], order)
    for line in [*lines, f"Figure 7 and table 1: {out / 'index.md'}"]:
        console.print(line, soft_wrap=True)


def live(console: Console, order: PaperOrder) -> None:
    """Train on MNIST what the headline compares, and print its speed beside the recorded one."""
    whole = SCALES[ScaleName.SATURATED]
    figures = [FIGURES["table-1"]]
    part, kept = limited(whole, figures, _LIVE, ["mnist"])
    order = replace(order, scale=part)
    training.train_missing(console, order.jobs_of(kept), order, order.folder)
    fresh, recorded = gather(kept[0], replace(order), {}).panels[:1], _panels("saturated")[:1]
    for key in _LIVE[1:]:
        words = [_each(panels, key, "traditional") for panels in (fresh, recorded)]
        label = next(arm.label for arm in fresh[0].arms if arm.key == key)
        console.print(f"{label} against Traditional, trained just now: {words[0]}", soft_wrap=True)
        console.print(f"{label} against Traditional, on record: {words[1]}", soft_wrap=True)


def _panels(scale: str) -> Sequence[Panel]:
    return gather(FIGURES["table-1"], committed(COMMITTED / scale), {}).panels


def _each(panels: Sequence[Panel], mine: str, theirs: str) -> str:
    """Return how many times as fast an arm is as another on each data set, in cost."""
    return listed(
        f"{_times(log_speed(panel, panel[mine], panel[theirs], 'cost'))} on {panel.setting.title}"
        for panel in panels
    )


def _times(logs: pd.Series) -> str:
    found = estimate([*logs])
    middle, low, high = (math.exp(x) for x in (found.mean, found.low, found.high))
    seeds = f"{found.seeds} seed{'' if found.seeds == 1 else 's'}"
    interval = "" if math.isnan(found.half_width) else f"{low:.2f} to {high:.2f}, "
    return f"{middle:.2f}× as fast ({interval}{seeds})"


def _behind(panels: Sequence[Panel]) -> str:
    return listed(
        f"{with_interval(final_difference(panel['sb'], panel['traditional']))} points of error, on "
        f"{panel.setting.title} in {panel.setting.recipe.epochs} epochs,"
        for panel in panels
    )
