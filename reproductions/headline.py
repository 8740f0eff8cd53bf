"""The paper's headline in four lines, from the records alone, or beside a short training anew."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, NullLocator
from rich.console import Console

from reproductions import papers, training
from reproductions.drawing import save
from reproductions.evidence import Panel
from reproductions.jiang2019.curves import FACTORS
from reproductions.jiang2019.scales import SCALES
from reproductions.jiang2019.times import log_speed, target_of
from reproductions.measures import final_difference, log_ratios
from reproductions.settings import SHORTENED
from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.estimates import Estimate, estimate
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.records.files import make_folder
from selective_backprop_lab.report.panels import FAINT, INK, SETTINGS

_RECORDS = Path(__file__).parents[1] / papers.COMMITTED
_ITEMS, _TABLE = ("fig-7", "table-1"), papers.FIGURES["table-1"]
_WRONG, _SPEEDS = (50, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1), (0.25, 0.5, 0.7, 1, 1.4, 2)  # marked
_LIVE = ("traditional", "sb", "shortened")  # on MNIST, a few minutes


def headline(console: Console, out: Path) -> None:
    """Print what the paper says and what is on record, and draw figure 7 and table 1."""
    saturated, full, gpu = (_panels(scale) for scale in ("saturated", "cifar10", "gpu"))
    reported = papers.FIGURES["fig-7"].reported
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
    order = papers.committed(_RECORDS / "saturated")
    make_folder(out)
    order = replace(order, out=out, records_in=order.folder)
    draw_learned(out / "learned")
    papers.reproduce(Console(quiet=True), [papers.FIGURES[name] for name in _ITEMS], order)
    for line in [*lines, f"Figure 7 and table 1: {out / 'index.md'}"]:
        console.print(line, soft_wrap=True)


def live(console: Console, order: papers.PaperOrder) -> None:
    """Train on MNIST what the headline compares, and print its speed beside the recorded one."""
    whole = SCALES["saturated"]
    figures = [_TABLE]
    part, kept = papers.limited(whole, figures, _LIVE, ["mnist"])
    order = replace(order, scale=part)
    training.train_missing(console, order.jobs_of(kept), order, order.folder)
    fresh = papers.gather(kept[0], replace(order), {}).panels[:1]
    recorded = _panels("saturated")[:1]
    for key in _LIVE[1:]:
        words = [_each(panels, key, "traditional") for panels in (fresh, recorded)]
        label = next(arm.label for arm in fresh[0].arms if arm.key == key)
        console.print(f"{label} against Traditional, trained just now: {words[0]}", soft_wrap=True)
        console.print(f"{label} against Traditional, on record: {words[1]}", soft_wrap=True)


def _panels(scale: str) -> Sequence[Panel]:
    return papers.gather(_TABLE, papers.committed(_RECORDS / scale), {}).panels


def _each(panels: Sequence[Panel], mine: str, theirs: str) -> str:
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


def places() -> Iterator[tuple[str, float, Estimate]]:
    """Yield every setting on record that has SB and a shortened schedule: what it is, and where.

    The numbers are the training error, in %, of plain training of SB's cost, and the logarithm of
    how many times as fast SB is as the best plain training.
    """
    for name in SCALES:
        if not (_RECORDS / name).is_dir() or _TABLE not in papers.figures_at(SCALES[name]):
            continue
        for panel in _panels(name):
            if {"sb", "shortened"} <= {arm.key for arm in panel.arms}:
                wrong = queries.metered(panel["shortened"], "train_error").dropna()
                logs = _beyond_plain(panel)
                if len(wrong) and len(logs):
                    title = f"{panel.setting.title} ({name})"
                    yield title, wrong.mean(), estimate([*logs])


def _beyond_plain(panel: Panel) -> pd.Series:
    """Return the logarithm of how many times sooner SB reaches targets than the best plain arm.

    The best is the one that reaches a target with most seeds, and then soonest.
    """
    plain = [panel[key] for key in ("traditional", *SHORTENED) if key in panel]
    found = []
    for factor in FACTORS:
        if (target := target_of(panel, factor)) is None:
            continue
        times = [np.log(queries.reached(runs, target, "cost")) for runs in plain]
        late = [(np.isinf(each).mean(), each[np.isfinite(each)].mean()) for each in times]
        best = plain[late.index(min(late))]
        found.append(log_ratios(panel["sb"], best, target, "cost"))
    each = pd.concat(found, axis=1) if found else pd.DataFrame()
    return each.replace(-math.inf, math.nan).mean(axis=1).dropna()


def draw_learned(path: Path) -> None:
    """Draw how fast SB is against how much of the training set is learned, a point a setting."""
    with matplotlib.rc_context(SETTINGS):
        drawing = Drawing(figsize=(7.2, 4.2), layout="constrained")
        axes = drawing.subplots()
        axes.set(xscale="log", yscale="log", xlim=(100, 0.04), ylim=(0.25, 2))
        for title, unlearned, speed in places():
            height, half = math.exp(speed.mean), speed.half_width
            wrong = max(unlearned, 0.05)
            ends = height * math.exp(-half), height * math.exp(half)
            axes.plot((wrong, wrong), ends, color=INK, linewidth=0.8, alpha=0.4)
            axes.plot(wrong, height, "o", color="#d55e00", markersize=5)
            axes.annotate(f"  {title}", (wrong, height), fontsize=7, va="center")
        axes.axhline(1.0, color=INK, linewidth=0.8, linestyle="dashed")
        axes.grid(True, color=FAINT, linewidth=0.6)
        for axis, ticks in ((axes.xaxis, _WRONG), (axes.yaxis, _SPEEDS)):
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(NullLocator())
        axes.set_xlabel("training error of plain training that costs as much as SB (%)")
        axes.set_ylabel("SB, times as fast as the best plain training")
        save(drawing, path, svg=False)
