"""Diet-SB: how long seven methods take, and how accurate four are where much is pruned."""

from collections.abc import Iterator, Mapping

from matplotlib.axes import Axes

from reproductions.diet_sb.lineup import PRUNED
from reproductions.jiang2019.clock import clock
from reproductions.jiang2019.drawing import caption, sheet, under
from reproductions.jiang2019.items import Entry, Filled, Found, Presentation
from reproductions.jiang2019.judging import Finding, above_zero, below_zero, paired
from reproductions.jiang2019.text import Grid, percent
from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    Estimate,
    at,
    estimate,
    final_error,
)
from selective_backprop.lab.analysis.tables import duration, with_interval
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import DASHES, FAINT, draw_phases, label_ends
from selective_backprop.lab.report.styles import Style

SETUP = (
    "x % pruned: so much of an epoch is not trained on. Random leaves out other examples each "
    "epoch; SB selects after an epoch of everything; EL2N prunes by two models trained for a tenth "
    "of the run each, their time included; Diet-SB prunes and selects, each down to the root of "
    "what is left."
)
_ALL = Style("#7a7a7a", "solid", 1.4)
_FAR = 80.0  # where the axis of pruned shares ends
_NAMES = {"random": "Random", "sb": "SB", "el2n": "EL2N", "diet": "Diet-SB"}


def present_runtime(found: Found) -> Presentation:
    """Draw and list the seconds of each method."""
    with sheet(1, len(found.panels), height=3.0) as (figure, grid):
        for panel, filled in zip(grid[0], found.panels, strict=True):
            draw_phases(panel, [arm for _, arm in filled.pairs], room=3.2)
        under(figure, f"{SETUP} {caption(found, timed=True)}")
    return Presentation(
        figure=figure,
        tables=tuple(map(_runtimes, found.panels)),
        findings=tuple(finding for filled in found.panels for finding in _faster(filled)),
    )


def present_accuracy(found: Found) -> Presentation:
    """Draw and list the accuracy of each method, by the share that is pruned."""
    with sheet(1, len(found.panels), height=3.2) as (figure, grid):
        for panel, filled in zip(grid[0], found.panels, strict=True):
            _draw(panel, filled)
            panel.set_title(filled.panel.title, loc="left", fontsize=9)
        words = f"Means and 95 % t-intervals over seeds. {SETUP}"
        under(figure, f"{words} {caption(found)}")
    return Presentation(
        figure=figure,
        tables=tuple(map(_accuracies, found.panels)),
        findings=tuple(finding for filled in found.panels for finding in _keeps(filled)),
    )


def _runtimes(filled: Filled) -> Grid:
    base, rows = filled.find("traditional"), []
    reference = _mean_seconds(base) if base else float("nan")
    for entry, arm in filled.pairs:
        last, seconds = [run.points[-1] for run in arm.runs], _mean_seconds(arm)
        prepared = [float(run.end["meters"]["prepared_cost"]) for run in arm.runs if run.end]
        rows.append(
            (
                entry.label,
                duration(estimate([point.seconds for point in last]).mean),
                duration(estimate([point.cpu_seconds for point in last]).mean),
                f"{reference / seconds:.2f}×",
                f"{estimate([point.cost for point in last]).mean:.2f}",
                f"{estimate(prepared).mean:.2f}",
                with_interval(_accuracy(arm)),
            )
        )
    head = (
        "method",
        "wall s",
        "CPU s",
        "speed-up",
        "cost, epochs",
        "of it preparing",
        "accuracy %",
    )
    return Grid(filled.panel.title, head, tuple(rows))


def _mean_seconds(arm: Arm) -> float:
    return estimate([at(run.points[-1], clock(arm.runs)) for run in arm.runs]).mean


def _accuracy(arm: Arm) -> Estimate:
    return estimate([100 - final_error(run) for run in arm.runs])


def _faster(filled: Filled) -> Iterator[Finding]:
    diet = filled.find("diet")

    axis = clock([] if diet is None else diet.runs)

    def longer(one: Run, two: Run) -> float:
        return at(one.points[-1], axis) - at(two.points[-1], axis)

    for key in ("traditional", "sb"):
        other = filled.find(key)
        if diet is not None and other is not None:
            claim = f"{filled.panel.title}: Diet-SB takes less time than {other.label} (implied)"
            yield below_zero(claim, paired(diet, other, longer), AXIS_WORDS[axis])


def _by_share(filled: Filled) -> Mapping[str, Mapping[float, tuple[Entry, Arm]]]:
    """Return the arms of each method by what it prunes."""
    found: dict[str, dict[float, tuple[Entry, Arm]]] = {key: {} for key in _NAMES}
    for entry, arm in filled.pairs:
        for share in PRUNED:
            if entry.key in found and entry.label.endswith(f" {percent(share)}"):
                found[entry.key][share] = (entry, arm)
    return found


def _draw(panel: Axes, filled: Filled) -> None:
    ends: list[tuple[str, Style, float, float]] = []
    for place, (key, arms) in enumerate(_by_share(filled).items()):
        if not arms:
            continue
        style = next(iter(arms.values()))[0].style
        # A little apart, so that intervals do not cover each other.
        x = [100 * share + 1.2 * (place - 1.5) for share in arms]
        means = [_accuracy(arm) for _, arm in arms.values()]
        y = [each.mean for each in means]
        whiskers = [0.0 if each.seeds < 2 else each.half_width for each in means]
        panel.errorbar(
            x,
            y,
            yerr=whiskers,
            color=style.colour,
            linestyle=DASHES[style.dash],
            linewidth=1.6,
            elinewidth=1.0,
            capsize=2.0,
        )
        ends.append((_NAMES[key], style, x[-1], y[-1]))
    base = filled.find("traditional")
    if base is not None:
        all_of_it = _accuracy(base).mean
        panel.axhline(all_of_it, color=_ALL.colour, linewidth=1.0)
        ends.append(("Traditional, all", _ALL, _FAR, all_of_it))
    panel.set_xticks([100 * share for share in PRUNED])
    panel.set_xlim(20, _FAR)
    panel.set_ylim(*panel.get_ylim())  # as it is now, for the names
    panel.set_xlabel("pruned (% of the examples of an epoch)")
    panel.set_ylabel("accuracy at the end (%)")
    panel.grid(True, axis="y", color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
    label_ends(panel, ends, line=0.068)


def _accuracies(filled: Filled) -> Grid:
    by_share = _by_share(filled)
    rows = [
        (
            name,
            *(
                with_interval(_accuracy(by_share[key][share][1])) if share in by_share[key] else "–"
                for share in PRUNED
            ),
        )
        for key, name in _NAMES.items()
    ]
    base = filled.find("traditional")
    if base is not None:
        rows.append(("Traditional, nothing pruned", *[with_interval(_accuracy(base))] * 3))
    head = ("accuracy, %", *(f"{percent(share)} pruned" for share in PRUNED))
    return Grid(filled.panel.title, head, tuple(rows))


def _keeps(filled: Filled) -> Iterator[Finding]:
    by_share = _by_share(filled)
    for share in PRUNED:
        for key, other in (("sb", "random"), ("el2n", "random"), ("diet", "random")):
            if share not in by_share[key] or share not in by_share[other]:
                continue
            claim = (
                f"{percent(share)} pruned: {_NAMES[key]} is more accurate than {_NAMES[other]} "
                "(implied)"
            )
            arm, theirs = by_share[key][share][1], by_share[other][share][1]
            found = paired(arm, theirs, lambda one, two: final_error(two) - final_error(one))
            yield above_zero(claim, found, "points of accuracy")
