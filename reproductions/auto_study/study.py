"""Redo a stage of the study: train what is missing, then judge it and write its page."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from rich.console import Console

import selective_backprop as sb
from reproductions import drawing
from reproductions.auto_study.budget_curves import BudgetCurves, budget_curves
from reproductions.auto_study.goals import goals
from reproductions.auto_study.protocol import HARDEST, OURS, RANDOM, Benchmark, Stage
from reproductions.training import Order, absent_data, file_of, is_done, train_missing
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.analysis.run_summary import seeds_of
from selective_backprop.lab.analysis.statistics import Estimate
from selective_backprop.lab.analysis.tables import Table, escaped, percent, with_interval
from selective_backprop.lab.analysis.verdict import GOALS, Finding, tally
from selective_backprop.lab.records.schema import Run, read_run, read_runs
from selective_backprop.lab.report.panels import INK, scale_error
from selective_backprop.lab.report.styles import Style, span, strategy_colours
from selective_backprop.lab.training.run_config import RunConfig

RUNS = "runs"
AT_A_GLANCE = (RANDOM, HARDEST, "infobatch", "easy-skip", OURS)
_NAMED = (BASELINE, RANDOM, OURS)
_FAR = 2.0  # a difference is drawn up to so many times the spread of the closer half of them
_BESIDE = "#9a9a9a"


@dataclass(frozen=True)
class Section:
    """One benchmark with its records."""

    benchmark: Benchmark
    runs: tuple[Run, ...]  # finished
    missing: int  # runs that are not on record

    @cached_property
    def curves(self) -> BudgetCurves:
        """The errors at each budget."""
        return budget_curves(self.runs, self.benchmark.budgets)

    @property
    def name(self) -> str:
        """Of its figure's file."""
        title = self.benchmark.title.lower()
        return "-".join("".join(c if c.isalnum() else " " for c in title).split())


@dataclass(frozen=True)
class Page:
    """What is said of a stage."""

    text: str  # in Markdown
    goals: Mapping[str, Sequence[Finding]]  # by title of the benchmark
    shown: tuple[Section, ...]  # those that have enough runs to be judged


def run_study(console: Console, stage: Stage, order: Order) -> None:
    """Train what is missing, then write the stage's page.

    Raises:
        DataError: if data of the stage are missing.
        RecordError: if a record cannot be read or written, or nothing is there to draw.
    """
    plans, folder = plans_of(stage, order.seeds, order.device), order.out / RUNS
    if order.trains:
        # A seed of each benchmark after the other, so that few seeds say something.
        every = sorted((plan for each in plans.values() for plan in each), key=lambda p: p.seed)
        absent = absent_data(every, order.root)
        if absent:
            raise sb.DataError("\n".join(absent.values()))
        train_missing(console, every, order, folder)
    page = compose(stage, _sections(plans, folder))
    if not page.shown:
        raise sb.RecordError(
            f"{folder} has no benchmark on which {BASELINE} and {OURS} were run at each budget"
        )
    draw_page(page, order.out)
    (order.out / "index.md").write_text(page.text, encoding="utf-8")
    for title, found in page.goals.items():
        console.print(f"{title}: {tally(found, GOALS)}", soft_wrap=True)
    console.print(f"Open {order.out / 'index.md'}; figures lie beside it.", soft_wrap=True)


def plans_of(stage: Stage, seeds: int, device: str) -> dict[Benchmark, list[RunConfig]]:
    """Return the runs of a stage."""
    return {each: stage.plans_on(each, seeds, device) for each in stage.benchmarks}


def read_sections(stage: Stage, folder: Path) -> list[Section]:
    """Return each benchmark of a stage with what a folder has on record of it.

    Raises:
        RecordError: if nothing is on record, or cannot be read.
    """
    seeds = 1 + max(run.header.seed for run in read_runs(folder / RUNS)) - stage.first_seed
    return _sections(plans_of(stage, seeds, "cpu"), folder / RUNS)


def _sections(plans: dict[Benchmark, list[RunConfig]], folder: Path) -> list[Section]:
    sections = []
    for benchmark, each in plans.items():
        runs = tuple(read_run(file_of(plan, folder)) for plan in each if is_done(plan, folder))
        sections.append(Section(benchmark, runs, len(each) - len(runs)))
    return sections


def compose(stage: Stage, sections: Sequence[Section]) -> Page:
    """Judge each benchmark on which `auto` and traditional training were run at each budget."""
    shown = tuple(each for each in sections if {BASELINE, OURS} <= set(each.curves.arms))
    judged = {each.benchmark.title: [*goals(each.benchmark, each.curves)] for each in shown}
    everything = [goal for found in judged.values() for goal in found]
    lines = [
        f"# {stage.title}",
        "",
        f"Of {len(everything)} goals: {tally(everything, GOALS) or 'no goal'}. A goal is *reached* "
        "where the whole 95 % interval over seeds lies on the side asked for, *missed* where it "
        "lies on the other, and *unresolved* where it holds both. The best of the others is chosen "
        "by the same errors that it is held against, which favours it.",
        "",
        *(f"- {title}: {tally(found, GOALS)}" for title, found in judged.items()),
        "",
        "<!-- sections -->",
        "",
        overview(shown).to_markdown(),
    ]
    for section in shown:
        title = section.benchmark.title
        picture = f"Error against cost on {title}, and differences to {BASELINE}."
        asked = [(goal.claim, GOALS[goal.verdict], goal.measured) for goal in judged[title]]
        head = ("goal", "outcome", "measured")
        lines += [
            f"## {title}",
            "",
            f"![{picture}]({section.name}.png)",
            "",
            errors_table(section).to_markdown(),
            "",
            Table(head, tuple(asked), f"What is asked of {OURS}").to_markdown(),
            "",
            escaped(_caption(section)),
            "",
        ]
    return Page("\n".join(lines), judged, shown)


def draw_page(page: Page, folder: Path, *, svg: bool = True) -> None:
    """Draw a figure for each benchmark of a page."""
    for section in page.shown:
        figure = draw_benchmark(section.benchmark, section.curves, _caption(section))
        drawing.save(figure, folder / section.name, svg=svg)


def overview(sections: Sequence[Section]) -> Table:
    """Return where traditional training ended, and how far from it others did."""
    shown = [arm for arm in AT_A_GLANCE if any(arm in each.curves.arms for each in sections)]
    rows = []
    for section in sections:
        for budget in section.curves.budgets:
            name = f"{section.benchmark.title} at {budget:g}"
            base = with_interval(section.curves.mean(BASELINE, budget))
            rows.append((name, base, *(_against(section.curves, arm, budget) for arm in shown)))
    title = (
        f"Final error of {BASELINE} training in %, and how many points higher the others ended, "
        "seed by seed, at the same cost in passes"
    )
    return Table(("", BASELINE, *shown), rows, title)


def errors_table(section: Section) -> Table:
    """Return where each strategy ended at each budget, and the CPU time that it took."""
    curves, rows = section.curves, []
    for arm in sorted(curves.arms, key=lambda arm: curves.mean(arm, curves.budgets[-1]).mean):
        errors = [with_interval(curves.mean(arm, budget)) for budget in curves.budgets]
        more = ["" if arm == BASELINE else _against(curves, arm, b) for b in curves.budgets]
        time = _seconds_per_cost(section.runs, arm) / _seconds_per_cost(section.runs, BASELINE)
        rows.append((arm, *errors, *more, f"{time:.2f}×"))
    head = (
        "strategy",
        *(f"error % at {budget:g}" for budget in curves.budgets),
        *(f"against {BASELINE} at {budget:g}" for budget in curves.budgets),
        "CPU time for the same cost",
    )
    return Table(head, rows, "Final errors, and differences seed by seed")


def _against(curves: BudgetCurves, arm: str, budget: float) -> str:
    return with_interval(curves.difference(arm, budget, BASELINE), signed=True)


def _seconds_per_cost(runs: Sequence[Run], arm: str) -> float:
    last = [run.points[-1] for run in runs if run.header.arm == arm]
    return statistics.median(point.cpu_seconds / point.cost for point in last)


def caption_of(runs: Sequence[Run]) -> str:
    """Return which seeds runs have, and what they were made on."""
    seeds = sorted({run.header.seed for run in runs})
    said = f"Seeds {seeds_of(seeds)}; 95 % t-intervals." if len(seeds) > 1 else f"Seed {seeds[0]}."
    return " ".join([said, *drawing.made_on(runs)])


def _caption(section: Section) -> str:
    benchmark, recipe = section.benchmark, section.benchmark.recipe
    amount = "all" if benchmark.limit is None else f"{benchmark.limit:,}"
    flipped = f", {percent(benchmark.noise)} of the labels flipped" if benchmark.noise else ""
    words = (
        f"{benchmark.title}: {amount} training examples{flipped}, {recipe.model}, batch "
        f"{recipe.batch_size}; each learning rate decays over its own run. "
        f"{caption_of(section.runs)}"
    )
    if section.missing:
        words += f" Left out: {section.missing} runs, not on record."
    return words


def draw_benchmark(benchmark: Benchmark, curves: BudgetCurves, caption: str) -> Drawing:
    """Draw errors over cost, then at each budget the differences to traditional training."""
    order = sorted(
        (arm for arm in curves.arms if arm != BASELINE),
        key=lambda arm: curves.mean(arm, curves.budgets[-1]).mean,
        reverse=True,
    )
    cells: list[drawing.Cell | None] = [partial(_draw_curves, curves=curves, title=benchmark.title)]
    for budget in curves.budgets:
        cells.append(partial(_draw_differences, curves=curves, order=order, budget=budget))
    cells += [None] * (len(cells) % 2)
    return drawing.sheet([cells[i : i + 2] for i in range(0, len(cells), 2)], caption, height=3.2)


def _draw_curves(panel: Axes, curves: BudgetCurves, title: str) -> None:
    colours = strategy_colours(curves.arms)
    shown = {*_NAMED, *map(curves.best_rival, curves.budgets)}
    lines: list[drawing.Line] = [
        (arm, Style(colours[arm], "solid", 3.2 if arm == OURS else 2.0), curves.curve(arm))
        for arm in curves.arms
        if arm in shown
    ]
    drawing.draw_lines(panel, lines, most=len(lines))
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(FixedLocator(curves.budgets))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set(xlabel="cost of the whole run, in traditional epochs", ylabel="final test error (%)")
    ends = [end for *_, line in lines for end in (*line.low, *line.high) if math.isfinite(end)]
    scale_error(panel, span([error for *_, line in lines for error in line.drawn], ends))
    drawing.name_lines(panel, lines)
    drawing.entitled(panel, title)


def _draw_differences(
    panel: Axes, curves: BudgetCurves, order: Sequence[str], budget: float
) -> None:
    colours = strategy_colours(order)
    found = [curves.difference(arm, budget, BASELINE) for arm in order]
    reach = max(_reach(found), _reach([found[order.index(OURS)]]) / _FAR)
    for height, (arm, each) in enumerate(zip(order, found, strict=True)):
        colour, ours = colours[arm] if arm in _NAMED else _BESIDE, arm == OURS
        if abs(each.mean) > reach:  # far off: an arrow at the edge, with the number
            edge = math.copysign(reach, each.mean)
            panel.plot(edge, height, marker=">" if edge > 0 else "<", color=colour, markersize=5)
            words, side = f"{each.mean:+.1f}", "right" if edge > 0 else "left"
            look: dict[str, Any] = {"va": "center", "ha": side, "fontsize": 7, "color": "#555555"}
            panel.text(0.86 * edge, height, words, **look)
            continue
        sizes: dict[str, Any] = {"markersize": 6 if ours else 4, "elinewidth": 1.6 if ours else 1.0}
        half = drawing.spread_of(each)
        panel.errorbar(each.mean, height, xerr=half, color=colour, marker="o", capsize=2, **sizes)
    panel.axvline(0.0, color=INK, linewidth=0.8)
    panel.set(xlim=(-1.08 * reach, 1.08 * reach), ylim=(-0.6, len(order) - 0.4))
    panel.set_yticks(range(len(order)), order)
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel(f"points above {BASELINE}")
    drawing.framed(panel, f"at a cost of {budget:g}", grid="x")


def _reach(found: Sequence[Estimate]) -> float:
    """Return how far a panel shows: all of the closer half, twice as far."""
    sizes = sorted(
        abs(each.mean) + drawing.spread_of(each) for each in found if math.isfinite(each.mean)
    )
    return max(_FAR * sizes[(len(sizes) - 1) // 2], 1e-3) if sizes else 1.0
