"""Figures 1, 10 and 18 and table 1: where time goes, and how soon an error is reached."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from reproductions import measures
from reproductions.claims import Answer, Case, Claim, Measure, is_within, times_as_fast
from reproductions.drawing import Cell, caption, in_pairs, sheet
from reproductions.evidence import Evidence, Panel
from reproductions.measures import at_target, clock, last, phase_seconds
from reproductions.quotes import read_reported
from reproductions.timing import PHASES, StepTimes
from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.curves import AXIS_WORDS
from selective_backprop_lab.analysis.estimates import Estimate, estimate
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.tables import Table, duration, percent, with_interval
from selective_backprop_lab.analysis.verdict import Verdict, is_above
from selective_backprop_lab.report.panels import INK, entitle
from selective_backprop_lab.report.styles import PHASE_COLOURS

FACTORS = (1.1, 1.2, 1.4)  # of Traditional's final error: the targets of table 1
# What the paper's bars are made of, from the phases that are metered; the first gives the colour.
PARTS: Mapping[str, tuple[str, ...]] = {
    "selection passes": ("score", "select"),
    "forward, training": ("forward",),
    "backward": ("backward",),
    "other": ("other", "load", "step", "prepare", "overhead"),
}
_KEYS = ("traditional", "sb", "stale")
_STEP = {"forward": "forward", "backward": "backward", "step": "optimiser"}
_LEAST = 3  # seeds, for a verdict
_ROOM = 3.4  # inches for a line of a legend
_TABLE_1 = read_reported(Path(__file__).with_name("reported.toml"))["table-1"].quotes


# Figures 1 and 10


def target_of(panel: Panel, factor: float) -> float | None:
    """Return a multiple of Traditional's final error, in percent; None if guessing reaches it."""
    if "traditional" not in panel:
        return None
    target = factor * queries.final(panel["traditional"]).mean()
    return target if target < panel.setting.guessing else None


def parts_of(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of each part up to evaluations."""
    spent = phase_seconds(evaluations)
    return pd.DataFrame(
        {part: spent.reindex(columns=list(names)).sum(axis=1) for part, names in PARTS.items()}
    )


def _compares(panel: Panel, factor: float) -> bool:
    return target_of(panel, factor) is not None and measures.together(panel.runs)


def _bars(panel: Panel, factor: float) -> Iterator[tuple[str, int, pd.DataFrame]]:
    """Yield the name of each bar, its seeds, and the parts of those that reached the target."""
    target = target_of(panel, factor)
    assert target is not None
    for arm in (arm for arm in panel.arms if arm.key in _KEYS):
        runs = panel[arm.key]
        yield arm.label, runs.seed.nunique(), parts_of(at_target(runs, target))


def _titled(panel: Panel, factor: float, words: str) -> str:
    """Return a panel's title with its target, or why there is none."""
    target = target_of(panel, factor)
    if "traditional" not in panel:
        return f"{panel.title}: Traditional is not on record"
    if target is None:
        return f"{panel.title}: guessing reaches {factor:g} × Traditional's error"
    if measures.together(panel.runs):
        return f"{panel.title}{words.format(target)}"
    apart = "of different days or machines"
    if measures.untimed(panel.runs):
        apart = "that shared a GPU or changed machines"
    return f"{panel.title}: runs {apart}, whose seconds cannot be compared"


def draw_bars(evidence: Evidence, *, factor: float) -> Drawing | None:
    """Take apart the time to a multiple of Traditional's final error, where seconds compare."""
    on_wall = clock(evidence.runs) == "seconds"
    words = "Means over the seeds that reached the target."
    if not on_wall:
        words += " CPU seconds are split in the same proportions as wall seconds."
    if any(panel.runs.overhead.isna().any() for panel in evidence.panels):
        words += " Setup and evaluation were not measured."
    else:
        words += " Other includes loading, setup and evaluation."
    cells: list[Cell] = []
    for panel in evidence.panels:
        if _compares(panel, factor):
            cells.append(partial(_draw_bars, panel=panel, factor=factor))
        else:
            words += f" Not drawn: {_titled(panel, factor, '')}."
    if not cells:
        return None
    return sheet(in_pairs(cells), f"{words} {caption(evidence, timed=on_wall)}", height=2.1)


def _draw_bars(axes: Axes, panel: Panel, factor: float) -> None:
    bars = list(_bars(panel, factor))
    for row, (_, seeds, parts) in enumerate(bars):
        left = 0.0
        for part, width in parts.mean().fillna(0.0).items():
            look: dict[str, Any] = {"color": PHASE_COLOURS[PARTS[str(part)][0]]}
            axes.barh(row, width, left=left, height=0.62, label=None if row else part, **look)
            left += width
        partly = f" ({len(parts)} of {seeds})" if len(parts) < seeds else ""
        text = f" {duration(left)} s{partly}" if len(parts) else " not reached"
        axes.text(left, row, text, va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(bars)), [label for label, *_ in bars])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, max(axes.get_xlim()[1] * 1.12, 1e-3))
    # Without the axis' own words: the bars hold evaluations.
    axes.set_xlabel(AXIS_WORDS[clock(panel.runs)])
    title = _titled(panel, factor, f" until {{:.2f}} % ({factor:g} × Traditional's)")
    entitle(axes, title, list(PARTS), room=_ROOM)


def bars_tables(evidence: Evidence, *, factor: float) -> Sequence[Table]:
    """List the seconds of each part, in panels whose seconds compare."""
    return [_bars_table(panel, factor) for panel in evidence.panels if _compares(panel, factor)]


def _bars_table(panel: Panel, factor: float) -> Table:
    rows = []
    for label, seeds, parts in _bars(panel, factor):
        cells = map(duration, parts.assign(all=parts.sum(axis=1)).mean())
        rows.append((label, *cells, f"{len(parts)} of {seeds}"))
    head = ("strategy", *(f"{part}, s" for part in PARTS), "all, s", "seeds that reach it")
    return Table(head, rows, _titled(panel, factor, ", to {:.2f} %"))


def _until(of: Callable[..., Answer]) -> Callable[..., Answer]:
    """Return a measure at a multiple of Traditional's final error, of its target."""

    def measure(case: Case, factor: float, **options: Any) -> Answer:
        target = target_of(case.panel, factor)
        return None if target is None else of(case, target, **options)

    return measure


def _less(case: Case, target: float, of: str) -> Estimate | None:
    """Return by how many per cent more an arm spends until a target is reached, of a part too."""
    if of in PARTS and not measures.together(pd.concat([case.mine, case.theirs])):
        return None
    there = [at_target(runs, target) for runs in (case.mine, case.theirs)]
    mine, theirs = (parts_of(each)[of] if of in PARTS else each[of] for each in there)
    return measures.paired(100 * (mine / theirs - 1))


def reaches_sooner(case: Case, target: float) -> tuple[Verdict | str, str]:
    """Judge whether an arm reaches an error, in percent, before another does."""
    ratios = measures.log_ratios(case.mine, case.theirs, target, case.axis)
    if never := int((ratios == -math.inf).sum()):
        words = f"never reached {target:.2f} % with {never} of {len(ratios)} seeds"
        return (Verdict.FAILS if never == len(ratios) >= _LEAST else Verdict.OPEN), words
    verdict, words = times_as_fast(ratios, f"to {target:.2f} % error, in {AXIS_WORDS[case.axis]}")
    gated = case.mine.arm.iloc[0].startswith("kath18")
    same = gated and len(ratios) > 0 and bool((ratios == 0).all())
    return ("is Traditional up to there" if same else verdict), words


def _as_fast(case: Case, target: float) -> tuple[Verdict | str, str]:
    """Judge whether an arm reaches an error as soon as another does, within a tenth."""
    verdict, words = reaches_sooner(case, target)
    ratios = measures.log_ratios(case.mine, case.theirs, target, case.axis)
    if not isinstance(verdict, Verdict) or (ratios == -math.inf).any():
        return verdict, words
    return is_within(estimate([*ratios]), math.log(1.1)), words


def _alone(of: Callable[..., Answer]) -> Callable[..., Answer]:
    """Return a measure of a run's own seconds, where these are known."""
    return lambda case, *given: None if measures.untimed(case.mine) else of(case, *given)


def _selecting(case: Case, _: float) -> Estimate:
    ends = last(case.mine)
    selecting = ends.phases.map(lambda phases: phases["select"])
    return measures.over_seeds(100 * selecting / ends.seconds)


def _forward_share(case: Case, _: float) -> Estimate:
    parts = parts_of(last(case.mine))
    forward = parts["selection passes"] + parts["forward, training"]
    return measures.over_seeds(100 * forward / parts.sum(axis=1))


# Table 1


def reported_speedups(data: str, key: str) -> list[float | None]:
    """Return the factors of a row of the paper's table, None for one that was not reached.

    Returns:
        Nothing where the paper has no such row.
    """
    if f"{data} {key}" not in _TABLE_1:
        return []
    cells = _TABLE_1[f"{data} {key}"].text.split("% ")[1].split()
    return [None if cell == "—" else float(cell.removesuffix("x")) for cell in cells]


def speedup_tables(evidence: Evidence) -> Sequence[Table]:
    """Make the table, in seconds as the paper's and in cost, with the paper's beside."""
    found = []
    for panel in evidence.panels:
        beside = panel.timed
        if len(beside.arms) > 1:
            found.append(speedup_table(beside, clock(beside.runs)))
        found.append(speedup_table(panel, "cost"))
    return found


def speedup_table(panel: Panel, axis: str) -> Table:
    """Return how much sooner each strategy reaches multiples of Traditional's final error."""
    base, rows = panel["traditional"], []
    for arm in panel.arms:
        runs = panel[arm.key]
        ours = ["–"] * len(FACTORS)
        if len(base):
            targets = [factor * queries.final(base).mean() for factor in FACTORS]
            ours = [
                _speedup(runs, base, target, axis)
                if target < panel.setting.guessing
                else "guessing reaches it"
                for target in targets
            ]
        said = reported_speedups(panel.setting.published.data, arm.key) or [math.nan] * len(FACTORS)
        error = with_interval(measures.over_seeds(queries.final(runs)))
        seeds = str(runs.seed.nunique())
        rows.append((arm.label, seeds, error, *ours, *map(_in_the_paper, said)))
    rows += [(arm.label, "none yet", *[""] * (1 + 2 * len(FACTORS))) for arm in panel.absent]
    factors = [f"{factor:g}×" for factor in FACTORS]
    head = ("strategy", "seeds", "final error %", *factors, *(f"paper {name}" for name in factors))
    return Table(head, tuple(rows), f"{panel.title}: speed-up in {AXIS_WORDS[axis]}")


def _in_the_paper(factor: float | None) -> str:
    if factor is None:
        return "not reached"
    return "" if math.isnan(factor) else f"{factor:.1f}×"


def _speedup(runs: pd.DataFrame, base: pd.DataFrame, target: float, axis: str) -> str:
    """Return the mean ratio over the seeds with which both get there; how many, if not all."""
    ratios = measures.log_ratios(runs, base, target, axis)
    there = ratios[ratios > -math.inf]
    if ratios.empty:
        return "–"
    partly = f" ({len(there)} of {len(ratios)})" if 0 < len(there) < len(ratios) else ""
    if 2 * len(there) <= len(ratios):
        return f"never{partly}"
    return f"{math.exp(there.mean()):.2f}×{partly}"


def speedup_claims() -> Iterator[Claim]:
    """Yield the claims of the rows of the paper's table: the direction of each speed-up."""
    for row in (quote for quote in _TABLE_1 if " " in quote):
        data, key = row.split(" ")
        for factor, reported in zip(FACTORS, reported_speedups(data, key), strict=True):
            words, guessed, measure = "is not reached", "is not reached", "never reached"
            if reported is not None:
                words = f"is {'no ' if reported < 1 else ''}faster ({reported:.1f}×)"
                if reported == 1:
                    words = "is as fast (1.0×), within a tenth (our limit)"
                guessed = f"is {reported:.1f}× as fast"
                measure = "as soon at" if reported == 1 else "sooner at"
            claim = Claim(
                row,
                f"{{0}} to {factor:g}× {words}",
                MEASURES[measure],
                (key, "traditional"),
                {"factor": factor},
                side="below" if reported is not None and reported < 1 else "above",
                axes=("seconds",),
                data=data,
            )
            both = (claim, replace(claim, arms=("released", "traditional")))
            for each in both if key == "stale" else both[:1]:
                yield each
                text = f"{{0}} to {factor:g}× {guessed}"
                yield replace(each, text=text, measure=Measure(_guessed))


def _guessed(case: Case, factor: float) -> Answer:
    """Say that guessing reaches a target, where it does."""
    target = factor * queries.final(case.theirs).mean()
    if target < case.panel.setting.guessing:
        return None
    return Verdict.OPEN, f"guessing reaches {target:.2f} %"


def _never(case: Case, target: float) -> Answer:
    """Judge whether an arm never reaches an error."""
    times = queries.reached(case.mine, target)
    seeds, there = len(times), int((times < math.inf).sum())
    verdict = Verdict.OPEN
    if seeds >= _LEAST and there in (0, seeds):
        verdict = Verdict.FAILS if there else Verdict.HOLDS
    return verdict, f"{there} of {seeds} seeds reached {target:.2f} %"


def _faster(case: Case) -> Answer:
    """Judge whether an arm reaches errors sooner, in the mean over those that both reach."""
    targets = [target_of(case.panel, factor) for factor in FACTORS]
    ratios = [
        measures.log_ratios(case.mine, case.theirs, target, case.axis)
        for target in targets
        if target is not None
    ]
    if not ratios:
        return None
    each = pd.concat(ratios, axis=1).replace(-math.inf, math.nan).mean(axis=1).dropna()
    return times_as_fast(each, f"in {AXIS_WORDS[case.axis]}, mean over targets that both reach")


# The learning rate of each strategy, where it is tuned


def tuned(panel: Panel) -> pd.DataFrame:
    """Return the final error of each strategy at each learning rate, in the panel's order."""
    return pd.DataFrame(
        {
            "label": arm.label.rpartition(", at ")[0],
            "key": arm.key.split(" ")[0],
            "rate": arm.plan.recipe.learning_rate,
            "error": queries.final(panel[arm.key]).mean(),
            "train_error": measures.over_seeds(
                queries.metered(panel[arm.key], "train_error").dropna()
            ),
        }
        for arm in panel.arms
    )


def tuning_table(panel: Panel) -> Table:
    """List where each strategy ended at each learning rate."""
    found, rows = tuned(panel), []
    rates = sorted(set(found.rate))
    for label, own in found.groupby("label", sort=False):
        ends, best = own.set_index("rate").error, own.loc[own.error.idxmin()]
        cells = (f"{ends[rate]:.2f}" if rate in ends else "–" for rate in rates)
        rows.append((label, *cells, f"{best.rate:g}", with_interval(best.train_error)))
    spent = sum(last(panel[arm.key]).cost.sum() for arm in panel.arms)
    title = f"{panel.title}: final error in %; all runs together cost {spent:.0f} epochs"
    head = ("strategy", *(f"at {rate:g}" for rate in rates), "best rate", "training error % at it")
    return Table(head, tuple(rows), title)


# Figure 18


def draw_steps(evidence: Evidence) -> Drawing:
    """Draw the shares of forward, backward and the optimiser, a bar for each net."""
    times = evidence.timings
    data = ", ".join(sorted({str(each.config["data"]) for each in times}))
    rounds = listed(str(count) for count in sorted({each.backward.rounds for each in times}))
    words = (
        f"Training steps alone on {data}, batch {times[0].config['batch_size']}, medians of "
        f"{rounds} rounds. {caption(evidence)}"
    )
    cells = [partial(_draw_steps, times=times, relative=relative) for relative in (True, False)]
    return sheet([cells], words, height=0.9 + 0.36 * len(times))


def steps_table(evidence: Evidence) -> Sequence[Table]:
    """List milliseconds of forward, backward and the optimiser, a row for each net."""
    rows = tuple(
        (
            str(each.config["model"]),
            *(f"{each.phases[phase]:.1f}" for phase in PHASES),
            f"{each.backward.median:.2f}",
            f"{each.backward.low:.2f} to {each.backward.high:.2f}",
        )
        for each in evidence.timings
    )
    phases = [f"{name}, ms" for name in _STEP.values()]
    head = ("net", *phases, "backward / forward", "95 % interval")
    return [Table(head, rows, "Milliseconds per 1,000 images")]


def _draw_steps(axes: Axes, times: Sequence[StepTimes], *, relative: bool) -> None:
    names = [str(each.config["model"]) for each in times]
    widths = pd.DataFrame([each.phases for each in times])[list(PHASES)]
    if relative:
        widths = widths.mul(100 / widths.sum(axis=1), axis=0)
    left = widths.cumsum(axis=1) - widths
    for phase in PHASES:
        look: dict[str, Any] = {"color": PHASE_COLOURS[phase], "label": _STEP[phase]}
        axes.barh(names, widths[phase], left=left[phase], height=0.62, **look)
        for row, (start, width) in enumerate(zip(left[phase], widths[phase], strict=True)):
            if relative and width > 6:
                colour = INK if phase == "forward" else "white"
                place, text = start + width / 2, percent(width / 100)
                axes.text(place, row, text, ha="center", va="center", fontsize=8, color=colour)
    if not relative:
        for row, length in enumerate(widths.sum(axis=1)):
            axes.text(length, row, f" {duration(length)}", va="center", fontsize=8, color=INK)
        axes.set_xlim(right=1.15 * axes.get_xlim()[1])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel("% of a training step" if relative else "milliseconds per 1,000 images")
    title = "Share of a step" if relative else "Time of a step"
    entitle(axes, title, list(_STEP.values()), room=_ROOM)


def _backward_longer(times: StepTimes) -> Answer:
    found = times.backward
    middle = Estimate((found.low + found.high) / 2, (found.high - found.low) / 2, found.rounds)
    return is_above(middle, 1.0), f"{found.median:.2f} × ({found.low:.2f} to {found.high:.2f})"


_TIME: Callable[..., Measure] = partial(Measure, signed=False)
MEASURES = {
    "spent until": Measure(_until(_less)),
    "sooner at": Measure(_until(reaches_sooner)),
    "as soon at": Measure(_until(_as_fast)),
    "never reached": Measure(_until(_never)),
    "time selecting": _TIME(_until(_alone(_selecting)), "% of the time"),
    "time in forward passes": _TIME(_until(_alone(_forward_share)), "% of the time of a whole run"),
    "speed": Measure(_faster),
    "backward over forward": Measure(_backward_longer),
}
