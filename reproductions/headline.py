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
from reproductions.jiang2019.scales import SCALES
from reproductions.jiang2019.times import log_speed, mean_ratio, targets_of
from reproductions.measures import Panel, final_difference, log_ratios, over_seeds
from reproductions.settings import SHORTENED
from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.estimates import Estimate
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.records.files import make_folder
from selective_backprop_lab.report.panels import FAINT, INK, SETTINGS

_RECORDS = Path(__file__).parents[1] / papers.COMMITTED
_ITEMS = [papers.FIGURES[name] for name in ("fig-7", "table-1")]
_TABLE = _ITEMS[1]
_WRONG, _SPEEDS = (50, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1), (0.25, 0.5, 0.7, 1, 1.4, 2)  # marked
_LIVE = ("traditional", "sb", "shortened")  # on MNIST, a few minutes


def headline(console: Console, out: Path) -> None:
    """Print what the paper says and what is on record, and draw figure 7 and table 1."""
    saturated, full, gpu = (_panels(scale) for scale in ("saturated", "cifar10", "gpu"))
    behind = listed(
        f"{with_interval(final_difference(panel['sb'], panel['traditional']))} points of error, on "
        f"{panel.setting.title} in {panel.setting.recipe.epochs} epochs,"
        for panel in (*full, *gpu[:1])
    )
    said, order = _ITEMS[0].reported.quotes["cifar10"], papers.committed(_RECORDS / "saturated")
    make_folder(out)
    draw_learned(out / "learned")
    order = replace(order, out=out, records_in=order.folder)
    papers.reproduce(Console(quiet=True), _ITEMS, order)
    for line in (
        f"The paper: “{said.text}” ({said.section}).",
        f"At saturation, in cost: SB against Traditional {_each(saturated, 'sb', 'traditional')}; "
        f"Stale-SB against SB {_each(saturated, 'stale', 'sb')}.",
        f"Where little is learned: SB ends {behind} above Traditional.",
        "A schedule shortened to a third: against Traditional "
        f"{_each(saturated, 'third', 'traditional')}; SB against it "
        f"{_each(saturated, 'sb', 'third')}.",
        f"Figure 7 and table 1: {out / 'index.md'}",
    ):
        console.print(line, soft_wrap=True)


def live(console: Console, order: papers.PaperOrder) -> None:
    """Train on MNIST what the headline compares, and print its speed beside the recorded one."""
    part, _ = papers.limited(SCALES["saturated"], [_TABLE], _LIVE, ["mnist"])
    order = replace(order, scale=part)
    training.train_missing(console, order.jobs_of([_TABLE]), order, order.folder)
    fresh = papers.gather(_TABLE, replace(order), {}).panels[:1]
    both = {"trained just now": fresh, "on record": _panels("saturated")[:1]}
    for arm in fresh[0].arms[1:]:
        for when, panels in both.items():
            words = _each(panels, arm.key, "traditional")
            console.print(f"{arm.label} against Traditional, {when}: {words}", soft_wrap=True)


def _panels(scale: str) -> Sequence[Panel]:
    return papers.gather(_TABLE, papers.committed(_RECORDS / scale), {}).panels


def _each(panels: Sequence[Panel], mine: str, theirs: str) -> str:
    said = list[str]()
    for panel in panels:
        found = over_seeds(log_speed(panel, panel[mine], panel[theirs], "cost"))
        low, high = math.exp(found.low), math.exp(found.high)
        seeds = f"{found.seeds} seed{'' if found.seeds == 1 else 's'}"
        interval = "" if math.isnan(found.half_width) else f"{low:.2f} to {high:.2f}, "
        speed = f"{math.exp(found.mean):.2f}× as fast ({interval}{seeds})"
        said.append(f"{speed} on {panel.setting.title}")
    return listed(said)


def _places() -> Iterator[tuple[str, float, Estimate]]:
    """Yield the name of each setting on record, and its place: two numbers.

    They are the training error, in %, of plain training of SB's cost, and the logarithm of how many
    times as fast SB is as the best plain training.
    """
    for name in SCALES:
        if not (_RECORDS / name).is_dir() or _TABLE not in papers.figures_at(SCALES[name]):
            continue
        for panel in (each for each in _panels(name) if "sb" in each and "shortened" in each):
            wrong = queries.metered(panel["shortened"], "train_error").dropna()
            logs = _beyond_plain(panel)
            if len(wrong) and len(logs):
                yield f"{panel.setting.title} ({name})", wrong.mean(), over_seeds(logs)


def _beyond_plain(panel: Panel) -> pd.Series:
    plain = [panel[key] for key in ("traditional", *SHORTENED) if key in panel]
    found = []
    for target in targets_of(panel):
        times = [np.log(queries.reached(runs, target, "cost")) for runs in plain]
        late = [(np.isinf(each).mean(), each[np.isfinite(each)].mean()) for each in times]
        best = plain[late.index(min(late))]  # gets there with most seeds, and then soonest
        found.append(log_ratios(panel["sb"], best, target, "cost"))
    return mean_ratio(found)


def draw_learned(path: Path) -> None:
    """Draw how fast SB is against how much of the training set is learned, a point a setting."""
    with matplotlib.rc_context(SETTINGS):
        drawing = Drawing(figsize=(7.2, 4.2), layout="constrained")
        axes = drawing.subplots()
        axes.set(xscale="log", yscale="log", xlim=(100, 0.04), ylim=(0.25, 2))
        for title, unlearned, speed in _places():
            height, wrong = math.exp(speed.mean), max(unlearned, 0.05)
            ends = math.exp(speed.low), math.exp(speed.high)
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
