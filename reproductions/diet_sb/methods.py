"""Diet-SB: how long seven methods take, and how accurate four are where much is pruned."""

from collections.abc import Iterator, Mapping
from functools import partial

from matplotlib.axes import Axes

from reproductions.claims import clock, mean_of, paired
from reproductions.diet_sb.overlap import PRUNED
from reproductions.drawing import LINE, End, caption, draw_whiskers, entitled, ruled, sheet
from reproductions.figures import Entry, Found, PanelData, Presentation, presented
from selective_backprop.lab.analysis.grouping import RunGroup
from selective_backprop.lab.analysis.statistics import AXIS_WORDS, Estimate, at, final_error
from selective_backprop.lab.analysis.tables import Table, duration, percent, with_interval
from selective_backprop.lab.analysis.verdict import Finding, above_zero, below_zero
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import draw_phases, label_ends
from selective_backprop.lab.report.styles import Style

_SETUP = (
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
    cells = [
        partial(draw_phases, groups=[arm for _, arm in shown.pairs], room=3.2)
        for shown in found.panels
    ]
    drawing = sheet([cells], f"{_SETUP} {caption(found, timed=True)}", height=3.0)
    return presented(found, drawing, _runtimes, _faster)


def _runtimes(shown: PanelData) -> Table:
    base, rows = shown.find("traditional"), []
    reference = _seconds(base).mean if base else float("nan")
    for entry, arm in shown.pairs:
        wall, cpu, cost = (
            mean_of(arm, lambda run, axis=axis: at(run.points[-1], axis)).mean
            for axis in ("seconds", "cpu_seconds", "cost")
        )
        prepared = mean_of(arm, lambda run: float((run.end or {})["meters"]["prepared_cost"])).mean
        speed_up = f"{reference / _seconds(arm).mean:.2f}×"
        times = (duration(wall), duration(cpu), speed_up, f"{cost:.2f}", f"{prepared:.2f}")
        rows.append((entry.label, *times, with_interval(_accuracy(arm))))
    times = ("wall s", "CPU s", "speed-up", "cost, epochs", "of it preparing")
    return Table(("method", *times, "accuracy %"), tuple(rows), shown.title)


def _seconds(arm: RunGroup) -> Estimate:
    axis = clock(arm.runs)
    return mean_of(arm, lambda run: at(run.points[-1], axis))


def _accuracy(arm: RunGroup) -> Estimate:
    return mean_of(arm, lambda run: 100 - final_error(run))


def _faster(shown: PanelData) -> Iterator[Finding]:
    diet = shown.find("diet")
    axis = clock(diet.runs if diet else [])

    def longer(one: Run, two: Run) -> float:
        return at(one.points[-1], axis) - at(two.points[-1], axis)

    for key in ("traditional", "sb"):
        other = shown.find(key)
        if diet is not None and other is not None:
            claim = f"{shown.title}: Diet-SB takes less time than {other.label} (implied)"
            yield below_zero(claim, paired(diet, other, longer), AXIS_WORDS[axis])


def present_accuracy(found: Found) -> Presentation:
    """Draw and list the accuracy of each method, by the share that is pruned."""
    words = f"Means and 95 % t-intervals over seeds. {_SETUP} {caption(found)}"
    cells = [partial(_draw, shown=shown) for shown in found.panels]
    return presented(found, sheet([cells], words, height=3.2), _accuracies, _keeps)


def _by_share(shown: PanelData) -> Mapping[str, Mapping[float, tuple[Entry, RunGroup]]]:
    """Return the arms of each method by what it prunes."""
    found: dict[str, dict[float, tuple[Entry, RunGroup]]] = {key: {} for key in _NAMES}
    for entry, arm in shown.pairs:
        for share in PRUNED:
            if entry.key in found and entry.label.endswith(f" {percent(share)}"):
                found[entry.key][share] = (entry, arm)
    return found


def _draw(panel: Axes, shown: PanelData) -> None:
    ends: list[End] = []
    for place, (key, arms) in enumerate(_by_share(shown).items()):
        if not arms:
            continue
        style = next(iter(arms.values()))[0].style
        # A little apart, so that intervals do not cover each other.
        x = [100 * share + 1.2 * (place - 1.5) for share in arms]
        y = [_accuracy(arm) for _, arm in arms.values()]
        draw_whiskers(panel, x, y, style, elinewidth=1.0, capsize=2.0)
        ends.append((_NAMES[key], style, x[-1], y[-1].mean))
    base = shown.find("traditional")
    if base is not None:
        all_of_it = _accuracy(base).mean
        panel.axhline(all_of_it, color=_ALL.colour, linewidth=1.0)
        ends.append(("Traditional, all", _ALL, _FAR, all_of_it))
    panel.set_xticks([100 * share for share in PRUNED])
    panel.set_xlim(20, _FAR)
    panel.set_ylim(*panel.get_ylim())  # as it is now, for the names
    panel.set_xlabel("pruned (% of the examples of an epoch)")
    panel.set_ylabel("accuracy at the end (%)")
    ruled(panel, "y")
    label_ends(panel, ends, line=LINE)
    entitled(panel, shown.title)


def _accuracies(shown: PanelData) -> Table:
    by_share, rows = _by_share(shown), []
    for key, name in _NAMES.items():
        arms = [by_share[key].get(share) for share in PRUNED]
        rows.append((name, *(with_interval(_accuracy(each[1])) if each else "–" for each in arms)))
    base = shown.find("traditional")
    if base is not None:
        rows.append(("Traditional, nothing pruned", *[with_interval(_accuracy(base))] * 3))
    head = ("accuracy, %", *(f"{percent(share)} pruned" for share in PRUNED))
    return Table(head, tuple(rows), shown.title)


def _keeps(shown: PanelData) -> Iterator[Finding]:
    by_share = _by_share(shown)
    for share in PRUNED:
        random = by_share["random"].get(share)
        for key in ("sb", "el2n", "diet"):
            ours = by_share[key].get(share)
            if ours and random:
                more = paired(
                    ours[1], random[1], lambda one, two: final_error(two) - final_error(one)
                )
                claim = f"{percent(share)} pruned: {_NAMES[key]} is more accurate than Random"
                yield above_zero(f"{claim} (implied)", more, "points of accuracy")
