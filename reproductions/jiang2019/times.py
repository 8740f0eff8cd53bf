"""Figures 1, 10 and 18 and table 1: the parts of the time, and how soon an error is reached."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from reproductions import claims, measures
from reproductions.claims import Amount, Answer, Case, Claim, Measure, times_as_fast
from reproductions.drawing import Cell, draw_bars, in_pairs, sheet
from reproductions.jiang2019.curves import FACTORS
from reproductions.measures import CLOCKS, Evidence, Panel, at_target, clock, last, mean_of
from reproductions.training import PHASES, StepTimes
from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.estimates import Estimate, Verdict, estimate, is_above
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.tables import Table, duration, percent, with_interval
from selective_backprop_lab.records.frame import AXIS_WORDS
from selective_backprop_lab.report.panels import INK, PHASE_COLOURS

# The parts of the paper's bars, from the phases that are metered; the first gives the colour.
PARTS: Mapping[str, tuple[str, ...]] = {
    "selection passes": ("score", "select"),
    "forward, training": ("forward",),
    "backward": ("backward",),
    "other": ("other", "load", "step", "prepare", "overhead"),
}
_STEP = {"forward": "forward", "backward": "backward", "step": "optimiser"}
_EPOCHS = Path(__file__).parents[2] / "records" / "bench" / "gpu-epochs.json"
_RATE = 1 / 3  # of its epochs
_TABLE_1 = claims.read_reported(Path(__file__).with_name("reported.toml"))["table-1"].quotes


# Figures 1 and 10
def target_of(panel: Panel, factor: float) -> float | None:
    """Return a multiple of Traditional's final error, in percent; None if guessing reaches it."""
    target = factor * queries.final(panel["traditional"]).mean()
    return target if target < panel.setting.guessing else None  # NaN without Traditional


def targets_of(panel: Panel) -> list[float]:
    return [found for factor in FACTORS if (found := target_of(panel, factor)) is not None]


def _parts_of(evaluations: pd.DataFrame) -> pd.DataFrame:
    spent = measures.phase_seconds(evaluations)
    parts = {part: spent.reindex(columns=names).sum(axis=1) for part, names in PARTS.items()}
    return pd.DataFrame(parts)


def _obstacle(panel: Panel, factor: float) -> str:
    """Say why a panel's seconds to a target cannot be shown; "" if they can."""
    if "traditional" not in panel:
        return "Traditional is not on record"
    if target_of(panel, factor) is None:
        return f"guessing reaches {factor:g} × Traditional's error"
    if measures.together(panel.runs):
        return ""
    shared = measures.untimed(panel.runs)
    apart = "that shared a GPU or changed" if shared else "of different days or"
    return f"runs {apart} machines, whose seconds cannot be compared"


def _parts(panel: Panel, factor: float) -> tuple[float, pd.DataFrame, list[tuple[int, int]]]:
    target, means, seeds = target_of(panel, factor), dict[str, pd.Series](), []
    assert target is not None
    for arm in (arm for arm in panel.arms if arm.key in ("traditional", "sb", "stale")):
        spent = _parts_of(at_target(panel[arm.key], target))
        means[arm.label] = spent.mean()
        seeds.append((len(spent), panel[arm.key].seed.nunique()))
    return target, pd.DataFrame(means).T, seeds


def draw_times(evidence: Evidence, *, factor: float) -> Drawing | None:
    """Take apart the time to a multiple of Traditional's final error, where seconds compare."""
    on_wall = clock(evidence.runs) == "seconds"
    words = ["Means over the seeds that reached the target."]
    if not on_wall:
        words.append("CPU seconds are split in the same proportions as wall seconds.")
    if any(panel.runs.overhead.isna().any() for panel in evidence.panels):
        words.append("Setup and evaluation were not measured.")
    else:
        words.append("Other includes loading, setup and evaluation.")
    why = {panel.title: _obstacle(panel, factor) for panel in evidence.panels}
    words += [f"Not drawn: {title}: {each}." for title, each in why.items() if each]
    shown = [panel for panel in evidence.panels if not why[panel.title]]
    cells: list[Cell] = [partial(_draw_times, panel=each, factor=factor) for each in shown]
    look: dict[str, Any] = {"height": 2.1, "timed": on_wall}
    return sheet(evidence, in_pairs(cells), " ".join(words), **look) if cells else None


def _draw_times(axes: Axes, panel: Panel, factor: float) -> None:
    target, means, reach = _parts(panel, factor)
    texts = list[str]()
    for spent, (some, seeds) in zip(means.sum(axis=1), reach, strict=True):
        partly = f" ({some} of {seeds})" if some < seeds else ""
        texts.append(f"{duration(spent)} s{partly}" if some else "not reached")
    title = f"{panel.title} until {target:.2f} % ({factor:g} × Traditional's)"
    colours = [PHASE_COLOURS[phases[0]] for phases in PARTS.values()]
    # Without the axis' own words: the bars hold evaluations.
    look: dict[str, Any] = {"stacked": True, "width": 0.62, "color": colours}
    draw_bars(axes, means.fillna(0.0), title, AXIS_WORDS[clock(panel.runs)], texts, **look)


def times_tables(evidence: Evidence, *, factor: float) -> Sequence[Table]:
    found = []
    for panel in (each for each in evidence.panels if not _obstacle(each, factor)):
        target, means, reach = _parts(panel, factor)
        every = means.assign(all=means.sum(axis=1, min_count=1))
        rows = [
            (str(label), *map(duration, cells), f"{some} of {seeds}")
            for (label, cells), (some, seeds) in zip(every.iterrows(), reach, strict=True)
        ]
        head = ("strategy", *(f"{part}, s" for part in every), "seeds that reach it")
        found.append(Table(head, rows, f"{panel.title}, to {target:.2f} %"))
    return found


def _until(of: Callable[..., Answer]) -> Callable[..., Answer]:
    def measure(case: Case, factor: float, **options: Any) -> Answer:
        target = target_of(case.panel, factor)
        return None if target is None else of(case, target, **options)

    return measure


def _less(case: Case, target: float, of: str) -> Estimate | None:
    both = measures.beside(case.mine, case.theirs) if of in PARTS else (case.mine, case.theirs)
    if both[0].empty:
        return None
    there = [at_target(runs, target) for runs in both]
    mine, theirs = (_parts_of(each)[of] if of in PARTS else each[of] for each in there)
    return measures.paired(100 * (mine / theirs - 1))


def reaches_sooner(case: Case, target: float) -> tuple[Verdict | str, str]:
    """Judge whether an arm reaches an error, in percent, before another does."""
    ratios = measures.log_ratios(case.mine, case.theirs, target, case.axis)
    if never := int((ratios == -math.inf).sum()):
        words = f"never reached {target:.2f} % with {never} of {len(ratios)} seeds"
        return (claims.NOTHING if never == len(ratios) else Verdict.OPEN), words
    verdict, words = times_as_fast(ratios, f"to {target:.2f} % error, in {AXIS_WORDS[case.axis]}")
    gated = case.mine.arm.iloc[0].startswith("kath18") and len(ratios) > 0
    same = gated and (measures.log_ratios(case.mine, case.theirs, target, "cost") == 0).all()
    return ("is Traditional up to there" if same else verdict), words


def _as_fast(case: Case, target: float) -> tuple[Verdict | str, str]:
    verdict, words = reaches_sooner(case, target)
    ratios = measures.log_ratios(case.mine, case.theirs, target, case.axis)
    if isinstance(verdict, Verdict) and (ratios > -math.inf).all():
        verdict = claims.is_within(estimate([*ratios]), math.log(1.1))
    return verdict, words


def _forward_share(ends: pd.DataFrame) -> pd.Series:
    spent = measures.phase_seconds(ends)  # without choosing, set-up and evaluation
    steps = spent[["score", "select", "load", *PHASES]].sum(axis=1)
    return (spent.score + spent.forward) / steps


def _share(of: Callable[[pd.DataFrame], pd.Series], unit: str) -> Measure:
    def measure(case: Case, _: float) -> Estimate | None:
        if measures.untimed(case.mine):
            return None
        return measures.over_seeds(100 * of(last(case.mine)))

    return Amount(_until(measure), unit)


# Table 1
def reported_speedups(data: str, key: str) -> list[float | None]:
    """Return the factors of a row of the paper's table: None if not reached, [] without a row."""
    if f"{data} {key}" not in _TABLE_1:
        return []
    cells = _TABLE_1[f"{data} {key}"].text.split("% ")[1].split()
    return [None if cell == "—" else float(cell.removesuffix("x")) for cell in cells]


def speedup_tables(evidence: Evidence) -> Sequence[Table]:
    """Make the table, in seconds as the paper's and in cost, with the paper's beside."""
    found = []
    for panel in evidence.panels:
        seconds = speedup_table(panel, clock(panel.runs))
        if len(seconds.rows) < 2 and clock(panel.runs) == "seconds":
            seconds = _converted(panel)
        found += [seconds] if any(row[0].startswith("SB") for row in seconds.rows) else []
        found.append(speedup_table(panel, "cost"))
    return found


def _converted(panel: Panel) -> Table:
    """Return speed-ups in the time that epochs take alone on a GPU, where runs shared one."""
    found, recipe = json.loads(_EPOCHS.read_text(encoding="utf-8")), panel.setting.recipe
    net = recipe.model, recipe.precision
    rows = [row for row in found["rows"] if (row["model"], row["precision"]) == net]
    each = {row["quantity"].removeprefix("an epoch: "): row["median"] for row in rows}
    timed = [arm for arm in panel.arms if arm.plan.arm in each]
    arms = [a for a in timed if a.plan.arm == queries.BASELINE or a.plan.settings.rate == _RATE]
    runs, warm = panel.runs, panel.setting.warmup * recipe.epochs
    later = (runs.epoch - warm).clip(lower=0) * runs.arm.map(each)
    alone = runs.assign(alone=runs.epoch.clip(upper=warm) + later)
    size, gpu = rows[0]["batch_size"] if rows else "–", found["hardware"]["gpu"]
    words = f"epochs, each as long as one alone on an {gpu} in batches of {size}"
    return speedup_table(replace(panel, arms=tuple(arms), runs=alone), "alone", words)


def speedup_table(panel: Panel, axis: str, words: str = "") -> Table:
    targets, rows = [target_of(panel, factor) for factor in FACTORS], []
    for arm in panel.arms:
        runs, base = panel[arm.key], panel["traditional"]
        if axis in CLOCKS:
            runs, base = measures.beside(runs, base)
            if runs.empty:
                continue  # its seconds do not compare with those of Traditional
        ours = [_speedup(runs, base, target, axis) for target in targets]
        said = reported_speedups(panel.setting.published.data, arm.key)
        theirs = ["not reached" if each is None else f"{each:.1f}×" for each in said]
        error, seeds = mean_of(queries.final(runs)), str(runs.seed.nunique())
        rows.append((arm.label, seeds, error, *ours, *(theirs or [""] * len(FACTORS))))
    rows += [(arm.label, "none yet", *[""] * (1 + 2 * len(FACTORS))) for arm in panel.absent]
    factors = [f"{factor:g}×" for factor in FACTORS]
    head = ("strategy", "seeds", "final error %", *factors, *(f"paper {name}" for name in factors))
    return Table(head, rows, f"{panel.title}: speed-up in {words or AXIS_WORDS[axis]}")


def _speedup(runs: pd.DataFrame, base: pd.DataFrame, target: float | None, axis: str) -> str:
    """Return the mean ratio over the seeds with which both get there; how many, if not all."""
    if target is None:
        return "guessing reaches it" if len(base) else "–"
    ratios = measures.log_ratios(runs, base, target, axis)
    there = ratios[ratios > -math.inf]
    if ratios.empty:
        return "–"
    partly = f" ({len(there)} of {len(ratios)})" if 0 < len(there) < len(ratios) else ""
    found = f"{math.exp(there.mean()):.2f}×" if 2 * len(there) > len(ratios) else "never"
    return found + partly


def speedup_claims() -> Iterator[Claim]:
    """Yield the claims of the rows of the paper's table: the direction of each speed-up."""
    for row in (quote for quote in _TABLE_1 if " " in quote):
        data, key = row.split(" ")
        for factor, said in zip(FACTORS, reported_speedups(data, key), strict=True):
            words, guessed, measure = "is not reached", "is not reached", "never reached"
            if said is not None:
                guessed = f"is {said:.1f}× as fast"
                words, measure = f"is {'no ' * (said < 1)}faster ({said:.1f}×)", "sooner at"
            if said == 1:
                words, measure = "is as fast (1.0×), within a tenth (our limit)", "as soon at"
            look: dict[str, Any] = {"axes": ("seconds",), "data": data}
            look |= {"side": "below"} if said is not None and said < 1 else {}
            for arm in (key, "released") if key == "stale" else (key,):
                for text, of in ((words, MEASURES[measure]), (guessed, Measure(_guessed))):
                    pair, options = (arm, "traditional"), {"factor": factor}
                    yield Claim(row, f"{{0}} to {factor:g}× {text}", of, pair, options, **look)


def _guessed(case: Case, factor: float) -> Answer:
    target = factor * queries.final(case.theirs).mean()
    if target < case.panel.setting.guessing:
        return None
    return Verdict.OPEN, f"guessing reaches {target:.2f} %"


def _never(case: Case, target: float) -> Answer:
    times = queries.reached(case.mine, target)
    seeds, there = len(times), int((times < math.inf).sum())
    verdict = Verdict.FAILS if there == seeds >= claims.LEAST else Verdict.OPEN
    words = f"{there} of {seeds} seeds reached {target:.2f} %"
    return verdict if there else claims.NOTHING, words


def log_speed(panel: Panel, mine: pd.DataFrame, theirs: pd.DataFrame, axis: str) -> pd.Series:
    """Return how many times sooner an arm reaches the targets, as a mean of logarithms, by seed."""
    return mean_ratio([measures.log_ratios(mine, theirs, each, axis) for each in targets_of(panel)])


def mean_ratio(ratios: Sequence[pd.Series]) -> pd.Series:
    """Return the mean over targets of logarithms, by seed; minus infinity does not count."""
    each = pd.concat(ratios, axis=1) if ratios else pd.DataFrame()
    return each.replace(-math.inf, math.nan).mean(axis=1).dropna()


def _faster(case: Case) -> Answer:
    if not targets_of(case.panel):
        return None
    each = log_speed(case.panel, case.mine, case.theirs, case.axis)
    return times_as_fast(each, f"in {AXIS_WORDS[case.axis]}, mean over targets that both reach")


# The learning rates that strategies are tried at
def tuned(panel: Panel) -> pd.DataFrame:
    """Return the final error of each strategy at each learning rate, in the panel's order."""
    rows = []
    for arm in panel.arms:
        runs, label, key = panel[arm.key], arm.label.rpartition(", at ")[0], arm.key.split(" ")[0]
        learned = measures.over_seeds(queries.metered(runs, "train_error").dropna())
        rate, error = arm.plan.recipe.learning_rate, queries.final(runs).mean()
        rows.append((label, key, rate, error, learned))
    return pd.DataFrame(rows, columns=["label", "key", "rate", "error", "train_error"])


def tuning_table(panel: Panel) -> Table:
    found, rows = tuned(panel), []
    rates = sorted(set(found.rate))
    for label, own in found.groupby("label", sort=False):
        ends, best = own.set_index("rate").error, own.loc[own.error.idxmin()]
        cells = (f"{ends[rate]:.2f}" if rate in ends else "–" for rate in rates)
        rows.append((label, *cells, f"{best.rate:g}", with_interval(best.train_error)))
    spent = sum(last(panel[arm.key]).cost.sum() for arm in panel.arms)
    title = f"{panel.title}: final error in %; all runs together cost {spent:.0f} epochs"
    head = ("strategy", *(f"at {rate:g}" for rate in rates), "best rate", "training error % at it")
    return Table(head, rows, title)


# Figure 18
def draw_steps(evidence: Evidence) -> Drawing:
    times = evidence.timings
    data = ", ".join(sorted({str(each.config["data"]) for each in times}))
    rounds = listed(str(count) for count in sorted({each.backward.rounds for each in times}))
    size = times[0].config["batch_size"]
    words = f"Training steps alone on {data}, batch {size}, medians of {rounds} rounds."
    names = [str(each.config["model"]) for each in times]
    spent = pd.DataFrame([each.phases for each in times], names)[list(PHASES)]
    colours = [PHASE_COLOURS[phase] for phase in PHASES]
    look: dict[str, Any] = {"stacked": True, "width": 0.62}

    def draw_shares(axes: Axes) -> None:
        shares = spent.mul(100 / spent.sum(axis=1), axis=0)
        shown, words = shares.rename(columns=_STEP), "% of a training step"
        draw_bars(axes, shown, "Share of a step", words, color=colours, **look)
        drawn: Any = axes.containers
        for phase, bars in zip(PHASES, drawn, strict=False):
            inside = [percent(share / 100) if share > 6 else "" for share in shares[phase]]
            colour = INK if phase == "forward" else "white"
            axes.bar_label(bars, inside, label_type="center", fontsize=8, color=colour)

    def draw_wholes(axes: Axes) -> None:
        whole, words = spent.sum(axis=1).to_frame("a step"), "milliseconds per 1,000 images"
        texts = [f"{time:,.0f}" for time in whole["a step"]]
        draw_bars(axes, whole, "Time of a step", words, texts, color=colours[1:2], **look)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlim(10 ** math.floor(math.log10(whole["a step"].min()) - 0.3))

    return sheet(evidence, [[draw_shares, draw_wholes]], words, height=0.9 + 0.36 * len(times))


def steps_table(evidence: Evidence) -> Sequence[Table]:
    rows = []
    for each in evidence.timings:
        spent, ratio = (f"{each.phases[phase]:.1f}" for phase in PHASES), each.backward
        interval = f"{ratio.low:.2f} to {ratio.high:.2f}"
        rows.append((str(each.config["model"]), *spent, f"{ratio.median:.2f}", interval))
    phases = (f"{name}, ms" for name in _STEP.values())
    head = ("net", *phases, "backward / forward", "95 % interval")
    return [Table(head, rows, "Milliseconds per 1,000 images")]


def _backward_longer(times: StepTimes) -> Answer:
    found = times.backward
    middle = Estimate((found.low + found.high) / 2, (found.high - found.low) / 2, found.rounds)
    return is_above(middle, 1.0), f"{found.median:.2f} × ({found.low:.2f} to {found.high:.2f})"


MEASURES = {
    "spent until": Measure(_until(_less)),
    "sooner at": Measure(_until(reaches_sooner)),
    "as soon at": Measure(_until(_as_fast)),
    "never reached": Measure(_until(_never)),
    "time selecting": _share(lambda own: own.phases.str["select"] / own.seconds, "% of the time"),
    "time in forward passes": _share(_forward_share, "% of the time in training batches"),
    "speed": Measure(_faster),
    "backward over forward": Measure(_backward_longer),
}
