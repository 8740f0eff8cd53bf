"""Figures 1 and 10: where the time to a target error goes."""

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean

from matplotlib.axes import Axes

from reproductions.jiang2019.clock import clock, seconds_of_phases
from reproductions.jiang2019.drawing import AXIS_LABELS, caption, sheet, under
from reproductions.jiang2019.items import Filled, Found, Presentation
from reproductions.jiang2019.judging import Finding, below_zero, paired, reaches_sooner
from reproductions.jiang2019.text import Grid
from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.analysis.statistics import estimate, final_error
from selective_backprop.lab.analysis.tables import duration
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import INK, entitle
from selective_backprop.lab.report.styles import PHASE_COLOURS

# What the paper's bars are made of, from the phases that are metered.
PARTS: Mapping[str, tuple[str, ...]] = {
    "selection passes": ("score", "select"),
    "forward, training": ("forward",),
    "backward": ("backward",),
    "other": ("load", "step", "prepare", "other"),
}
_COLOURS = dict(
    zip(
        PARTS,
        (PHASE_COLOURS[name] for name in ("score", "forward", "backward", "other")),
        strict=True,
    )
)
_KEYS = ("traditional", "sb", "stale")


def presenter(factor: float) -> Callable[[Found], Presentation]:
    """Return what draws the time to a multiple of Traditional's final error."""

    def present(found: Found) -> Presentation:
        with sheet(1, len(found.panels), height=2.1) as (figure, grid):
            for panel, filled in zip(grid[0], found.panels, strict=True):
                _draw(panel, filled, factor)
            on_wall = clock(found.runs) == "seconds"
            words = "Mean over the seeds that reached the target."
            if not on_wall:
                words += " CPU seconds are split as the wall seconds of the phases are."
            under(figure, f"{words} {caption(found, timed=on_wall)}")
        return Presentation(
            figure=figure,
            tables=tuple(_table(filled, factor) for filled in found.panels),
            findings=tuple(f for filled in found.panels for f in _judge(filled, factor)),
        )

    return present


def target_of(filled: Filled, factor: float) -> float | None:
    """Return a multiple of Traditional's final error, in percent; None if guessing reaches it."""
    base = filled.find("traditional")
    if base is None:
        return None
    target = factor * estimate([final_error(run) for run in base.runs]).mean
    return target if target < filled.panel.setting.guessing else None


def parts_at(run: Run, target: float) -> dict[str, float] | None:
    """Return the seconds of each part until an error was first seen; None if it never was."""
    for point in run.points:
        if point.test_error <= target:
            spent = seconds_of_phases(run, point)
            return {
                part: sum(spent.get(phase, 0.0) for phase in phases)
                for part, phases in PARTS.items()
            }
    return None


def _reached(arm: Arm, target: float) -> list[dict[str, float]]:
    found = (parts_at(run, target) for run in arm.runs)
    return [parts for parts in found if parts is not None]


def _shown(filled: Filled) -> list[tuple[str, Arm]]:
    return [(entry.label, arm) for entry, arm in filled.pairs if entry.key in _KEYS]


def _draw(panel: Axes, filled: Filled, factor: float) -> None:
    target, shown = target_of(filled, factor), _shown(filled)
    names = [label for label, _ in shown]
    if target is not None:
        for row, (_, arm) in enumerate(shown):
            _bar(panel, row, arm, target)
    panel.set_yticks(range(len(names)), names)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.set_xlim(0, max(panel.get_xlim()[1] * 1.12, 1e-3))
    panel.set_xlabel(AXIS_LABELS[clock([run for _, arm in shown for run in arm.runs])])
    if target is None:
        panel.set_xticks([])
        entitle(panel, filled.panel.title + _without(filled, factor), [], room=3.4)
        return
    words = f" until {target:.2f} % ({factor:g} × Traditional's)"
    entitle(panel, filled.panel.title + words, list(PARTS), room=3.4)


def _without(filled: Filled, factor: float) -> str:
    """Say why there is no target."""
    if filled.find("traditional") is None:
        return ": Traditional is not on record"
    return f": guessing reaches {factor:g} × Traditional's error"


def _bar(panel: Axes, row: int, arm: Arm, target: float) -> None:
    reached = _reached(arm, target)
    left = 0.0
    for part in PARTS:
        width = fmean(parts[part] for parts in reached) if reached else 0.0
        label = part if row == 0 else None
        panel.barh(row, width, left=left, height=0.62, color=_COLOURS[part], label=label)
        left += width
    partly = f" ({len(reached)} of {len(arm.runs)})" if len(reached) < len(arm.runs) else ""
    text = f" {duration(left)} s{partly}" if reached else " not reached"
    panel.text(left, row, text, va="center", fontsize=8, color=INK)


def _table(filled: Filled, factor: float) -> Grid:
    target, rows = target_of(filled, factor), []
    for label, arm in _shown(filled):
        reached = [] if target is None else _reached(arm, target)
        cells = [
            duration(fmean(parts[part] for parts in reached)) if reached else "–" for part in PARTS
        ]
        total = duration(fmean(sum(parts.values()) for parts in reached)) if reached else "–"
        rows.append((label, *cells, total, f"{len(reached)} of {len(arm.runs)}"))
    words = _without(filled, factor) if target is None else f", to {target:.2f} %"
    head = ("strategy", *(f"{part}, s" for part in PARTS), "all, s", "seeds there")
    return Grid(filled.panel.title + words, head, tuple(rows))


def _judge(filled: Filled, factor: float) -> Iterator[Finding]:
    target = target_of(filled, factor)
    base, ours, stale = (filled.find(key) for key in _KEYS)
    if target is None or base is None or ours is None:
        return

    def spent(part: str) -> Callable[[Run, Run], float]:
        def difference(one: Run, two: Run) -> float:
            mine, theirs = parts_at(one, target), parts_at(two, target)
            if mine is None or theirs is None:
                return float("nan")
            return mine[part] - theirs[part]

        return difference

    title = filled.panel.title
    for arm, other in ((ours, base), (stale, ours)):
        if arm is not None:
            claim = f"{title}: {arm.label} gets there sooner than {other.label}"
            yield reaches_sooner(claim, arm, other, target, clock(other.runs))
    claim = f"{title}: SB spends less time in backward passes than Traditional"
    yield below_zero(claim, paired(ours, base, spent("backward")), "s of backward passes")
    if stale is not None:
        claim = f"{title}: Stale-SB spends less time in selection passes than SB"
        yield below_zero(claim, paired(stale, ours, spent("selection passes")), "s of selection")
