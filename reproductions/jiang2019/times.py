"""Figures 1, 10 and 18 and table 1: where time goes, and how soon an error is reached."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes

from reproductions import claims
from reproductions.claims import compared
from reproductions.drawing import caption, sheet
from reproductions.figures import Found, Judged, PanelData, Presentation, presented
from reproductions.quotes import read_reported
from reproductions.timing import PHASES, ROUNDS, StepTimes
from selective_backprop_lab.analysis.grouping import RunGroup
from selective_backprop_lab.analysis.statistics import (
    AXIS_LABELS,
    AXIS_WORDS,
    FACTORS,
    Axis,
    Estimate,
    speedups,
    time_to,
    training_error,
)
from selective_backprop_lab.analysis.tables import Table, duration, percent, with_interval
from selective_backprop_lab.analysis.verdict import (
    Finding,
    Verdict,
    below_zero,
    is_above,
    opposite,
)
from selective_backprop_lab.records.schema import Point, Run
from selective_backprop_lab.report.panels import INK, entitle
from selective_backprop_lab.report.styles import PHASE_COLOURS

# What the paper's bars are made of, from the phases that are metered; the first gives the colour.
PARTS: Mapping[str, tuple[str, ...]] = {
    "selection passes": ("score", "select"),
    "forward, training": ("forward",),
    "backward": ("backward",),
    "other": ("other", "load", "step", "prepare", "overhead"),
}
_TABLE_1 = read_reported(Path(__file__).with_name("reported.toml"))["table-1"].quotes
_KEYS = ("traditional", "sb", "stale")
_SB, _STALE = ("sb", "traditional"), ("stale", "sb")
_STEP = {"forward": "forward", "backward": "backward", "step": "optimiser"}
_ROOM = 3.4  # inches for a line of a legend


# Figures 1 and 10


def present_until(
    factor: float, judge: Callable[[PanelData, float], Iterator[Judged]]
) -> Callable[[Found], Presentation]:
    """Return what takes apart the time to a multiple of Traditional's final error."""

    def present(found: Found) -> Presentation:
        on_wall = claims.clock(found.runs) == "seconds"
        words = "Mean over the seeds that reached the target."
        if not on_wall:
            words += " CPU seconds are split as the wall seconds of the phases are."
        if any(point.overhead is None for run in found.runs for point in run.points):
            words += " Setting up and evaluations were not metered."
        else:
            words += " Other: loading, setting up and evaluations among it."
        cells = [partial(_draw_bars, shown=shown, factor=factor) for shown in found.panels]
        return presented(
            found,
            sheet([cells], f"{words} {caption(found, timed=on_wall)}", height=2.1),
            partial(bars_table, factor=factor),
            lambda shown: judge(shown, factor),
        )

    return present


def target_of(shown: PanelData, factor: float) -> float | None:
    """Return a multiple of Traditional's final error, in percent; None if guessing reaches it."""
    base = shown.find("traditional")
    if base is None:
        return None
    target = factor * claims.final(base).mean
    return target if target < shown.panel.setting.guessing else None


def parts_at(run: Run, target: float) -> dict[str, float] | None:
    """Return the seconds of each part until an error was first seen; None if it never was."""
    return next((_parts(run, point) for point in run.points if point.test_error <= target), None)


def _parts(run: Run, point: Point) -> dict[str, float]:
    spent = claims.seconds_of_phases(run, point)
    return {part: sum(spent.get(phase, 0.0) for phase in phases) for part, phases in PARTS.items()}


def _bars(
    shown: PanelData, factor: float
) -> Iterator[tuple[str, RunGroup, list[dict[str, float]]]]:
    """Yield name and arm of each bar, and its parts for each seed that reached the target."""
    target = target_of(shown, factor)
    for entry, arm in shown.pairs:
        if entry.key in _KEYS:
            each = [None if target is None else parts_at(run, target) for run in arm.runs]
            yield entry.label, arm, [parts for parts in each if parts is not None]


def _until(shown: PanelData, factor: float, target: float | None, words: str) -> str:
    """Return a panel's title with its target, or why there is none."""
    if target is not None:
        return f"{shown.title}{words.format(target)}"
    if shown.find("traditional") is None:
        return f"{shown.title}: Traditional is not on record"
    return f"{shown.title}: guessing reaches {factor:g} × Traditional's error"


def _draw_bars(panel: Axes, shown: PanelData, factor: float) -> None:
    target, bars = target_of(shown, factor), list(_bars(shown, factor))
    for row, (_, arm, reached) in enumerate(bars if target is not None else []):
        left = 0.0
        for part, phases in PARTS.items():
            width = fmean(parts[part] for parts in reached) if reached else 0.0
            look: dict[str, Any] = {
                "color": PHASE_COLOURS[phases[0]],
                "label": None if row else part,
            }
            panel.barh(row, width, left=left, height=0.62, **look)
            left += width
        partly = f" ({len(reached)} of {len(arm.runs)})" if len(reached) < len(arm.runs) else ""
        text = f" {duration(left)} s{partly}" if reached else " not reached"
        panel.text(left, row, text, va="center", fontsize=8, color=INK)
    panel.set_yticks(range(len(bars)), [label for label, *_ in bars])
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(bars) - 0.4, -0.6)
    panel.set_xlim(0, max(panel.get_xlim()[1] * 1.12, 1e-3))
    panel.set_xlabel(AXIS_LABELS[claims.clock([run for _, arm, _ in bars for run in arm.runs])])
    if target is None:
        panel.set_axis_off()
    title = _until(shown, factor, target, f" until {{:.2f}} % ({factor:g} × Traditional's)")
    entitle(panel, title, [] if target is None else list(PARTS), room=_ROOM)


def bars_table(shown: PanelData, factor: float) -> Table:
    """Return the seconds of each part."""
    rows = []
    for label, arm, reached in _bars(shown, factor):
        seconds = [[*parts.values(), sum(parts.values())] for parts in reached]
        cells = [duration(fmean(column)) for column in zip(*seconds, strict=True)]
        cells = cells or ["–"] * (len(PARTS) + 1)
        rows.append((label, *cells, f"{len(reached)} of {len(arm.runs)}"))
    title = _until(shown, factor, target_of(shown, factor), ", to {:.2f} %")
    head = ("strategy", *(f"{part}, s" for part in PARTS), "all, s", "seeds there")
    return Table(head, rows, title)


def judge_time(shown: PanelData, factor: float) -> Iterator[Judged]:
    """Judge figure 1: fewer backpropagations, less time, and less again with older losses."""
    target, ours = target_of(shown, factor), shown.find("sb")
    if target is None or ours is None:
        return
    claim = "SB backpropagates fewer examples than Traditional (paper: by 70 %)"
    less = _less(target, lambda run, point: point.trained, "% of the examples backpropagated")
    yield from compared(shown, "backpropagations", claim, _SB, less)
    claim, sooner = "{} gets there sooner than {} (paper: twice as fast)", _sooner(shown, target)
    yield from compared(shown, "half", claim, _SB, sooner)
    claim = "{} gets there sooner than {} (paper: by 26 %)"
    yield from compared(shown, "stale", claim, _STALE, sooner)
    claim = "Stale-SB makes fewer forward passes than SB (paper: half)"
    less = _less(target, lambda run, point: point.forwards, "% of the forward passes")
    yield from compared(shown, "stale", claim, _STALE, less)
    share = claims.mean_of(ours, lambda run: 100 * _phases(run)["select"] / run.points[-1].seconds)
    claim = f"{shown.title}: selecting takes at most 3 % of SB's time"
    yield "selection", claims.below(claim, share, 3.0, "% of the time")


def judge_parts(shown: PanelData, factor: float) -> Iterator[Judged]:
    """Judge figure 10: which parts are shorter, and so the whole."""
    target, ours = target_of(shown, factor), shown.find("sb")
    if target is None or ours is None:
        return

    def less(part: str, unit: str) -> claims.Comparison:
        return _less(target, lambda run, point: _parts(run, point)[part], unit)

    claim = "SB spends less time in backward passes than Traditional"
    yield from compared(shown, "caption", claim, _SB, less("backward", "% of backward passes"))
    claim, sooner = "{} gets there sooner than {}", _sooner(shown, target)
    yield from compared(shown, "caption", claim, _SB, sooner)
    share = claims.mean_of(ours, _forward_share)
    half = f"{shown.title}: more than half of SB's time is spent on forward passes"
    yield "forward", claims.above(half, share, 50.0, "% of the time of a whole run")
    yield from compared(shown, "stale", claim, _STALE, sooner)
    claim = "Stale-SB spends less time in selection passes (paper: two thirds less)"
    fewer = less("selection passes", "% of the time in selection passes")
    yield from compared(shown, "thirds", claim, _STALE, fewer)


def _sooner(shown: PanelData, target: float) -> claims.Comparison:
    """Return the judge of who reaches an error sooner."""
    return partial(claims.reaches_sooner, target=target, axis=claims.clock(shown.runs))


def _less(target: float, of: Callable[[Run, Point], float], unit: str) -> claims.Comparison:
    """Return the judge of who spends less of something until an error is reached."""
    return lambda claim, arm, other: below_zero(claim, _spent(arm, other, target, of), unit)


def _spent(
    arm: RunGroup, other: RunGroup, target: float, of: Callable[[Run, Point], float]
) -> Estimate:
    """Return by how many per cent an arm spends more than another until an error is reached."""

    def difference(one: Run, two: Run) -> float:
        mine, theirs = (
            next((of(run, point) for point in run.points if point.test_error <= target), math.nan)
            for run in (one, two)
        )
        return 100 * (mine / theirs - 1) if theirs else math.nan

    return claims.paired(arm, other, difference)


def _phases(run: Run) -> Mapping[str, float]:
    return run.points[-1].phases


def _forward_share(run: Run) -> float:
    parts = _parts(run, run.points[-1])
    return 100 * (parts["selection passes"] + parts["forward, training"]) / sum(parts.values())


# Table 1


def present_speedups(found: Found) -> Presentation:
    """Make the table, in seconds as the paper's and in cost, with the paper's beside."""
    axes = claims.timed(("seconds", "cost"), found.runs)
    tables = [speedup_table(shown, axis) for shown in found.panels for axis in axes]
    return Presentation(None, tables, presented(found, judge=judge_speedups).findings)


def speedup_table(shown: PanelData, axis: Axis) -> Table:
    """Return how much sooner each strategy reaches multiples of Traditional's final error."""
    base, guessing = shown.find("traditional"), shown.panel.setting.guessing
    rows = []
    for entry, arm in shown.pairs:
        found = speedups(arm, base, axis=axis) if base else ()
        measured = [each.text if each.target < guessing else "guessing does" for each in found]
        said = reported_speedups(shown.panel.setting.paper_data, entry.key)
        theirs = [_said(factor) for factor in said] or [""] * len(FACTORS)
        cells = (*(measured or ["–"] * len(FACTORS)), *theirs)
        rows.append((entry.label, with_interval(claims.final(arm)), *cells))
    factors = [f"{factor:g}×" for factor in FACTORS]
    head = ("strategy", "final error %", *factors, *(f"paper {name}" for name in factors))
    return Table(head, tuple(rows), f"{shown.title}: speed-up in {AXIS_WORDS[axis]}")


def reported_speedups(data: str, key: str) -> list[float | None]:
    """Return the factors of a row of the paper's table, None for one that was not reached.

    Returns:
        Nothing where the paper has no such row.
    """
    quote = _TABLE_1.get(f"{data} {key}")
    if quote is None:
        return []
    cells = quote.text.split("% ")[1].split()
    return [None if cell == "—" else float(cell.removesuffix("x")) for cell in cells]


def _said(factor: float | None) -> str:
    return "not reached" if factor is None else f"{factor:.1f}×"


def judge_speedups(shown: PanelData) -> Iterator[Judged]:
    """Judge the direction of each speed-up that the paper reports, then of one over another."""
    base, setting = shown.find("traditional"), shown.panel.setting
    if base is None:
        return
    targets = [factor * claims.final(base).mean for factor in FACTORS]
    for key in ("sb", "stale", "kath18"):
        arm, reported = shown.find(key), reported_speedups(setting.paper_data, key)
        if arm is None:
            continue
        for factor, said, target in zip(FACTORS, reported, targets, strict=False):
            where, quote = (
                f"{shown.title}: {arm.label} to {factor:g}×",
                f"{setting.paper_data} {key}",
            )
            if target < setting.guessing:
                yield quote, judge_speedup(where, arm, base, target, said)
            else:
                claim = f"{where} is {'not reached' if said is None else f'{said:.1f}× as fast'}"
                yield quote, Finding(claim, Verdict.OPEN, f"guessing reaches {target:.2f} %")
    targets = [target for target in targets if target < setting.guessing]
    if not targets:
        return
    judge = partial(claims.faster, targets=targets, axis=claims.clock(shown.runs))
    for quote, keys, words in (
        ("sb-kath18", ("sb", "kath18"), "1.02–1.8×"),
        ("stale-sb", _STALE, "26 % on average"),
        ("stale-kath18", ("stale", "kath18"), "1.3–2.3×"),
    ):
        claim = f"{{}} is faster than {{}} (paper: {words})"
        yield from compared(shown, quote, claim, keys, judge)


def judge_speedup(
    where: str, arm: RunGroup, base: RunGroup, target: float, said: float | None
) -> Finding:
    """Judge one reported speed-up; None says that the target was not reached."""
    if said is None:
        seeds, reached = len(arm.runs), sum(time_to(run, target) is not None for run in arm.runs)
        verdict = Verdict.OPEN
        if seeds > 1 and reached in (0, seeds):
            verdict = Verdict.FAILS if reached else Verdict.HOLDS
        words = f"{reached} of {seeds} seeds reached {target:.2f} %"
        return Finding(f"{where} is not reached", verdict, words)
    found = claims.reaches_sooner(
        f"{where} is faster ({_said(said)})", arm, base, target, claims.clock(base.runs)
    )
    if said > 1.0:
        return found
    claim = f"{where} is no faster ({_said(said)})"
    return Finding(claim, opposite(found.verdict), found.measured)


# The learning rate of each strategy, where it is tuned


def present_tuning(found: Found) -> Presentation:
    """List where each strategy ended at each learning rate."""
    return presented(found, table=_tuning_table)


def tuned(shown: PanelData) -> dict[str, dict[float, float]]:
    """Return the final error of each strategy at each learning rate, by its key."""
    ends: dict[str, dict[float, float]] = {}
    for entry, arm in shown.pairs:
        error = claims.final(arm).mean
        ends.setdefault(entry.key, {})[entry.plan.recipe.learning_rate] = error
    return ends


def best_rates(shown: PanelData) -> dict[str, float]:
    """Return the learning rate at which each strategy ended lowest, by its key."""
    return {key: min(ends, key=ends.__getitem__) for key, ends in tuned(shown).items()}


def _tuning_table(shown: PanelData) -> Table:
    labels = {entry.key: entry.label for entry, _ in shown.pairs}
    rates = sorted({entry.plan.recipe.learning_rate for entry, _ in shown.pairs})
    rows, taken = [], best_rates(shown)
    learned = {
        (entry.key, entry.plan.recipe.learning_rate): claims.mean_of(arm, training_error)
        for entry, arm in shown.pairs
    }
    for key, ends in tuned(shown).items():
        cells = (f"{ends[rate]:.2f}" if rate in ends else "–" for rate in rates)
        there = with_interval(learned[key, taken[key]])
        rows.append((labels[key], *cells, f"{taken[key]:g}", there))
    spent = sum(run.points[-1].cost for _, arm in shown.pairs for run in arm.runs)
    title = f"{shown.title}: final error in %; all of it cost {spent:.0f} epochs"
    head = ("strategy", *(f"at {rate:g}" for rate in rates), "taken", "training error % there")
    return Table(head, tuple(rows), title)


# Figure 18


def present_steps(found: Found) -> Presentation:
    """Draw the shares of forward, backward and the optimiser, a bar for each net."""
    times = found.timings
    data = ", ".join(sorted({str(each.config["data"]) for each in times}))
    words = (
        f"Training steps alone on {data}, batch {times[0].config['batch_size']}, median of "
        f"{ROUNDS} rounds. {caption(found)}"
    )
    cells = [partial(_draw_steps, times=times, relative=relative) for relative in (True, False)]
    drawing = sheet([cells], words, height=0.9 + 0.36 * len(times))
    rows = tuple(
        (
            str(each.config["model"]),
            *(f"{each.phases[phase]:.1f}" for phase in PHASES),
            f"{each.backward.median:.2f}",
            f"{each.backward.low:.2f} to {each.backward.high:.2f}",
        )
        for each in times
    )
    phases = [f"{name}, ms" for name in _STEP.values()]
    head = ("net", *phases, "backward / forward", "95 % interval")
    table = Table(head, rows, "Milliseconds per 1,000 images")
    return Presentation(drawing, [table], [("longer", _judge_step(each)) for each in times])


def _draw_steps(panel: Axes, times: tuple[StepTimes, ...], *, relative: bool) -> None:
    names = [str(each.config["model"]) for each in times]
    wholes = [sum(each.phases.values()) if relative else 100.0 for each in times]
    left = [0.0] * len(names)
    for phase in PHASES:
        widths = [
            each.phases[phase] * (100 / whole) for each, whole in zip(times, wholes, strict=True)
        ]
        look: dict[str, Any] = {"color": PHASE_COLOURS[phase], "label": _STEP[phase]}
        panel.barh(names, widths, left=left, height=0.62, **look)
        for row, (start, width) in enumerate(zip(left, widths, strict=True)):
            if relative and width > 6:
                colour = INK if phase == "forward" else "white"
                place, text = start + width / 2, percent(width / 100)
                panel.text(place, row, text, ha="center", va="center", fontsize=8, color=colour)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()
    panel.set_xlabel("% of a training step" if relative else "milliseconds per 1,000 images")
    title = "Share of a step" if relative else "Time of a step"
    entitle(panel, title, list(_STEP.values()), room=_ROOM)


def _judge_step(times: StepTimes) -> Finding:
    found = times.backward
    middle = Estimate((found.low + found.high) / 2, (found.high - found.low) / 2, ROUNDS)
    model = times.config["model"]
    claim = f"{model}: a backward pass takes longer than a forward pass (paper: up to 2.5×)"
    words = f"{found.median:.2f} × ({found.low:.2f} to {found.high:.2f})"
    return Finding(claim, is_above(middle, 1.0), words)
