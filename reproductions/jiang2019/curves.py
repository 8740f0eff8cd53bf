"""Figures of error over time and cost, and the front of figure 14."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import EngFormatter, MaxNLocator, NullFormatter, ScalarFormatter

from reproductions import drawing, measures
from reproductions.claims import Amount, Answer, Case, Measure, beyond_the_first
from reproductions.measures import SAME, Evidence, Panel, clock, last, mean_of, over_seeds, paired
from reproductions.settings import SHORTENED, STRATEGIES, USUAL, Arm, make_arm
from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.estimates import Estimate, curve, estimate
from selective_backprop_lab.analysis.tables import Table, count, duration, percent, with_interval
from selective_backprop_lab.records.frame import AXIS_LABELS, AXIS_WORDS
from selective_backprop_lab.report.panels import INK, scale_error, span

TIME = ("seconds", "cost")  # the seconds of the runs' own clock
_CROWD = 8
_MARKED = 5.0  # inches of a panel with long names
FACTORS = (1.1, 1.2, 1.4)  # of Traditional's final error: the targets of table 1
_TOP = 1.5  # times it: above that, runs of the paper's figures 6 and 7 are not told apart
_OVER, _UNDER = 1.05, 0.96  # times the highest end, and the lowest error
_CUT = 4  # an axis of errors ends at so many times the highest final error


def draw_errors(evidence: Evidence, *, axes: Sequence[str], marked: bool = False) -> Drawing:
    """Draw error along axes, which are columns of the evaluations.

    Seconds are drawn for arms that were timed side by side, if these are more than half. `marked`
    figures, as 6 and 7, have the final error beside each line, and the targets of table 1 as lines.
    """
    said, time = list[str](), clock(evidence.runs)
    if any(len(panel.arms) > _CROWD for panel in evidence.panels):
        said.append("Only the table has all lengths of Traditional and all ages of losses.")
    shares = [len(panel.timed.arms) / len(panel.arms) for panel in evidence.panels]
    shown = [axis for axis in axes if axis != "seconds"]
    if "seconds" in axes and max(shares) > 1 / 2:
        shown = [time if axis == "seconds" else axis for axis in axes]
        if min(shares) < 1:
            said.append("Seconds are shown of strategies that were timed side by side.")
    cells = _by_axis(evidence, shown, partial(_draw, marked=marked))
    look: dict[str, Any] = {"width": _MARKED if marked else drawing.WIDTH}
    look |= {"timed": time == "seconds", "lines": _lines(evidence)}
    return drawing.sheet(evidence, cells, " ".join(said), **look)


def _by_axis(
    evidence: Evidence, along: Sequence[str], draw: Callable[..., object]
) -> list[list[drawing.Cell | None]]:
    rows: list[list[drawing.Cell | None]] = []
    for panel in evidence.panels:
        beside = {axis: panel.timed if axis in measures.CLOCKS else panel for axis in along}
        shown = [axis for axis in along if beside[axis] is panel or len(beside[axis].arms) > 1]
        # The last panel of a row names the lines of all.
        titles = [panel.title, *[""] * len(along)]
        row: list[drawing.Cell | None] = [
            partial(draw, panel=beside[axis], axis=axis, title=title, named=axis == shown[-1])
            for axis, title in zip(shown, titles, strict=False)
        ]
        rows.append([*row, *[None] * (len(along) - len(row))])
    return rows if len(along) > 1 else drawing.in_pairs([each for (each,) in rows])


def _draw(
    axes: Axes,
    panel: Panel,
    axis: str,
    title: str = "",
    *,
    column: str = "error",
    marked: bool = False,
    named: bool = True,
) -> None:
    """Draw a number of each arm along an axis; arms that repeat Traditional are named with it."""
    arms, same = _drawn(panel)

    def name(arm: Arm) -> str:
        also = [each.label.removesuffix(f" ({SAME})") for each in same]
        label = " = ".join([arm.label, *(also if arm.key == "traditional" else [])])
        if not marked or not named:
            return label if named else ""
        error = queries.final(panel[arm.key]).mean()
        return f"{label}, {error:.{1 if error >= 10 else 2}f} %"

    lines = [(name(arm), arm.style, curve(panel[arm.key], axis, column)) for arm in arms]
    drawing.draw_lines(axes, lines)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.locator_params(axis="x", nbins=5)
    # High errors early in training would leave the ends of the lines no room.
    ends = [line.mean[-1] for *_, line in lines]
    most = _CUT * max(ends, default=math.inf)
    base = queries.final(panel["traditional"]).mean() if marked else math.nan
    if base > 0:
        most = max(_TOP * base, *(_OVER * end for end in ends))
    shown = [error for *_, line in lines for error in line.mean if error <= most]
    if base > 0:
        look: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 6.5}
        for factor in (each for each in FACTORS if each * base < panel.setting.guessing):
            axes.axhline(factor * base, color=INK, linewidth=0.6, linestyle=(0, (4, 3)), zorder=1)
            place = axes.get_yaxis_transform()
            axes.text(0.99, factor * base, f"{factor:g}×", transform=place, **look)
        axes.set_yscale("log")
        axes.set_ylim(_UNDER * min(shown), min(most, panel.setting.guessing))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        scale_error(axes, span(shown))
    label = "test loss" if column == "test_loss" else "test error (%)" if title else ""
    drawing.finish(axes, title, lines, xlabel=AXIS_LABELS[axis], ylabel=label)


def _drawn(panel: Panel) -> tuple[list[Arm], list[Arm]]:
    arms = [arm for arm in panel.arms if len(panel.arms) <= _CROWD or arm.key in USUAL]
    same = [arm for arm in arms if panel.repeats_traditional(arm.key)]
    return [arm for arm in arms if arm not in same], same


def _lines(evidence: Evidence) -> list[int]:
    return [len(_drawn(panel)[0]) for panel in evidence.panels]


def draw_poster(evidence: Evidence) -> Drawing:
    evidence = filtered_named(evidence)
    rows = []
    for panel in evidence.panels:
        draw = partial(_draw, panel=panel, axis="trained")
        rows.append([partial(draw, title=panel.title), partial(draw, column="test_loss")])
    return drawing.sheet(evidence, rows, lines=_lines(evidence), width=_MARKED)


def filtered_named(evidence: Evidence) -> Evidence:
    """Return evidence whose arms' labels have the share that each filtered."""
    panels = []
    for panel in evidence.panels:
        shares = [percent(_filtered(last(panel[arm.key]))) for arm in panel.arms]
        both = zip(panel.arms, shares, strict=True)
        arms = (replace(arm, label=f"{arm.label}, {share} filtered") for arm, share in both)
        panels.append(replace(panel, arms=tuple(arms)))
    return replace(evidence, panels=tuple(panels))


def _filtered(ends: pd.DataFrame) -> float:
    return 1 - ends.trained.sum() / ends.candidates.sum()


def ends_table(panel: Panel, *, timed: bool = True) -> Table:
    """Return where each arm ended, and what it took; `timed` adds seconds."""
    beside = {arm.key for arm in panel.timed.arms} if len(panel.timed.arms) > 1 else set()
    # Old records lack it.
    has_train_error = any("train_error" in meters for meters in panel.runs.meters)

    def cells(arm: Arm, runs: pd.DataFrame) -> dict[str, str]:
        ends = last(runs)
        row = {"final error %": mean_of(queries.final(runs)), "filtered": percent(_filtered(ends))}
        counts = {"updates": "updates", "backpropagated": "trained", "forwards": "forwards"}
        row |= {name: count(ends[column].mean()) for name, column in counts.items()}
        row["cost"] = duration(ends.cost.mean())
        for name, column in {"wall s": "seconds", "CPU s": "cpu_seconds"}.items() if timed else ():
            row[name] = duration(ends[column].mean()) if arm.key in beside else "–"
        if has_train_error:
            row["training error %"] = mean_of(queries.metered(runs, "train_error").dropna())
        return row

    return panel.table(cells)


def time_tables(evidence: Evidence) -> Sequence[Table]:
    tables, controls = [*map(ends_table, evidence.panels)], {*SHORTENED, "random", "scored"}
    head = ("SB, points of error", "mean over the same cost", "at the end")
    for panel in (each for each in evidence.panels if "sb" in each):
        rows = []
        for arm in (arm for arm in panel.arms if arm.key in controls):
            pair = panel["sb"], panel[arm.key]
            found = measures.earlier(*pair, "cost"), measures.final_difference(*pair)
            cells = (with_interval(value, signed=True) for value in found)
            rows.append((f"against {arm.label}", *cells))
        title = f"{panel.title}: SB against controls that the paper does not have"
        tables += [Table(head, rows, title)] if rows else []
    return tables


def _filtered_later(case: Case) -> Estimate:
    ends = last(case.mine)
    first = case.panel.setting.warmup * ends.candidates
    return over_seeds(100 * (1 - (ends.trained - first) / (ends.candidates - first)))


def _gain(mine: pd.DataFrame, theirs: pd.DataFrame) -> pd.Series:
    one, other = measures.on_the_way(mine, theirs, "cost")
    return 100 * (one / other - 1)


# Figure 14: the strategies on the front of time against error
# Mark and size of each family of configurations, by the first word of an arm's key. Of equal
# places, the smaller mark lies on top.
MARKS = {"traditional": ("s", 9), "sb": ("o", 7.5), "stale": ("^", 6), "kath18": ("D", 4.5)}
_OURS = ("sb", "stale")
_BUDGETS = 200


def front(places: pd.DataFrame) -> pd.DataFrame:
    """Return all places that no other place beats in `time` and `error`, the soonest first."""
    ordered = places.sort_values(["time", "error"])
    single = ordered.drop_duplicates(["time", "error"])
    lower = single[single.error < single.error.cummin().shift(fill_value=math.inf)]
    return ordered[ordered.error == ordered.time.map(lower.set_index("time").error)]


def share(places: pd.DataFrame, families: Sequence[str]) -> float:
    """Return the families' share of the front in percent; equal places are shared."""
    kept = front(places)
    own = kept.family.isin(families).groupby(kept.time).mean()
    return 100 * float(own.mean()) if len(own) else 0.0


def _share_of_budgets(places: pd.DataFrame, families: Sequence[str]) -> float:
    """Return at which % of evenly spaced times the families have the lowest error so far."""
    budgets = np.linspace(places.time.min(), places.time.max(), _BUDGETS)
    lowest, ours = [], []
    for family, own in places.sort_values("time").groupby("family"):
        so_far = np.append(np.inf, np.fmin.accumulate(own.error))
        lowest.append(so_far[np.searchsorted(own.time, budgets, side="right")])
        ours.append(family in families)
    best = np.array(lowest) == np.min(lowest, axis=0)  # equal errors are shared
    return 100 * float((best[ours].sum(0) / best.sum(0)).mean())


def _compared(panel: Panel) -> Panel:
    return panel.only(arm for arm in panel.arms if panel.gate_shut(arm.key) != SAME)


def _by_seed(panel: Panel, axis: str, of: Callable[[pd.DataFrame], float]) -> Estimate:
    runs = _compared(panel).runs  # only seeds count that every configuration has
    places = _of_its_own(runs.assign(time=runs[axis], family=runs.key.str.split(" ").str[0]))
    complete = places.groupby("seed").key.nunique() == places.key.nunique()
    return estimate([of(own) for seed, own in places.groupby("seed") if complete[seed]])


def _of_its_own(places: pd.DataFrame) -> pd.DataFrame:
    """Return places without those of Kath18 that Traditional has too, before its gate opened."""
    keys = pd.MultiIndex.from_frame(places[[k for k in ("seed", "time", "error") if k in places]])
    shared = keys.isin(keys[places.family == "traditional"])
    return places[~(shared & (places.family == "kath18"))]


def draw_front(evidence: Evidence) -> Drawing:
    along = measures.timed(TIME, evidence.runs)
    return drawing.sheet(evidence, _by_axis(evidence, along, _draw_front), timed="seconds" in along)


def _draw_front(axes: Axes, panel: Panel, axis: str, title: str, *, named: bool) -> None:
    each = list[pd.DataFrame]()
    for arm in _compared(panel).arms:
        line, family = curve(panel[arm.key], axis), arm.key.split(" ")[0]
        each.append(pd.DataFrame({"family": family, "time": line.x, "error": line.mean}))
    places = _of_its_own(pd.concat(each, ignore_index=True))
    kept = front(places)
    for key, (marker, size) in MARKS.items():
        own, colour = places[places.family == key], make_arm(key, panel.setting).style.colour
        style: dict[str, Any] = {"marker": marker, "color": colour, "linestyle": ""}
        if own.empty:
            continue
        rest, top = own.drop(kept.index, errors="ignore"), own[own.index.isin(kept.index)]
        axes.plot(rest.time, rest.error, **style, markersize=3.5, alpha=0.3, fillstyle="none")
        style |= {"markersize": size, "markeredgecolor": "white", "zorder": 3}
        axes.plot(top.time, top.error, **style, label=STRATEGIES[key][0])
    axes.step(kept.time, kept.error, where="post", color="#444444", linewidth=0.8, zorder=2)
    axes.set_xlim(left=0)
    scale_error(axes, span([*places.error]))
    label, legend = "test error (%)" if title else "", "upper right" if named else None
    drawing.finish(axes, title, legend=legend, xlabel=AXIS_LABELS[axis], ylabel=label)


def front_table(panel: Panel) -> Table:
    rows, along, kept = [], measures.timed(TIME, panel.runs), _compared(panel)
    for key in MARKS:
        every, own = ([arm.key.split(" ")[0] for arm in p.arms].count(key) for p in (panel, kept))
        same = f", and {every - own} that are Traditional here" if own < every else ""
        found = [
            with_interval(_by_seed(panel, axis, partial(of, families=[key]))) if own else "–"
            for of, axis in product((share, _share_of_budgets), along)
        ]
        rows.append((STRATEGIES[key][0], f"{own}{same}", *found))
    shares = [f"% of the {of}, {AXIS_WORDS[x]}" for of in ("front", "budgets") for x in along]
    return Table(("strategy", "configurations", *shares), rows, panel.title)


def _ours(case: Case, of: Callable[..., float]) -> Estimate:
    return _by_seed(case.panel, case.axis, partial(of, families=_OURS))


def _lead(case: Case, rival: str) -> Answer:
    if not any(arm.key.split(" ")[0] == rival for arm in _compared(case.panel).arms):
        return SAME, "its gate never opened in any configuration"
    return _by_seed(case.panel, case.axis, lambda own: share(own, _OURS) - share(own, [rival]))


def _lowest_behind(case: Case) -> Estimate | None:
    pair = ["traditional", "sb"]
    if not {arm.key.split(" ")[0] for arm in case.panel.arms}.issuperset(pair):
        return None
    return _by_seed(
        case.panel, "cost", lambda places: places.groupby("family").error.min()[pair].diff().iloc[1]
    )


MEASURES = {
    "forward passes saved": Measure(
        lambda case: paired(100 * (1 - last(case.mine).forwards / last(case.theirs).forwards)),
        "% of forward passes saved",
    ),
    "filtered after the first epoch": Amount(_filtered_later, "% of the images"),
    "loss on the way": Amount(
        lambda case: measures.earlier(case.mine, case.theirs, case.axis, "test_loss"),
        "of mean test loss over the same images",
    ),
    "gain beyond the first": Measure(
        partial(beyond_the_first, of=_gain), "% of mean error more than in the first panel"
    ),
    "share of the front": Amount(partial(_ours, of=share), "% of the front"),
    "share of the budgets": Amount(partial(_ours, of=_share_of_budgets), "% of the budgets"),
    "lead in shares": Amount(_lead, "points of share"),
    "lowest error behind": Amount(_lowest_behind, "points of error"),
}
