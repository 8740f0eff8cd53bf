"""The page of a stage: what was asked for, what was measured, and where everything ended."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reproductions.auto_study.budget_curves import BudgetCurves, budget_curves
from reproductions.auto_study.drawing import draw_benchmark
from reproductions.auto_study.goals import goals
from reproductions.auto_study.protocol import HARDEST, OURS, RANDOM, Benchmark, Stage
from reproductions.drawing import made_on, save
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.analysis.run_summary import seeds_of
from selective_backprop.lab.analysis.tables import Table, escaped, percent, with_interval
from selective_backprop.lab.analysis.verdict import GOALS, Finding, tally
from selective_backprop.lab.records.schema import Run

AT_A_GLANCE = (RANDOM, HARDEST, "infobatch", "easy-skip", OURS)


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
        drawing = draw_benchmark(section.benchmark, section.curves, _caption(section))
        save(drawing, folder / section.name, svg=svg)


def overview(sections: Sequence[Section]) -> Table:
    """Return where traditional training ended, and how far from it others did."""
    shown = [arm for arm in AT_A_GLANCE if any(arm in each.curves.arms for each in sections)]
    rows = []
    for section in sections:
        for budget in section.curves.budgets:
            name = f"{section.benchmark.title} at {budget:g}"
            base = with_interval(section.curves.mean(BASELINE, budget))
            rows.append((name, base, *(_against(section.curves, arm, budget) for arm in shown)))
    return Table(
        ("", BASELINE, *shown),
        tuple(rows),
        f"Final error of {BASELINE} training in %, and how many points higher the others ended, "
        "seed by seed, at the same cost in passes",
    )


def errors_table(section: Section) -> Table:
    """Return where each strategy ended at each budget, and the CPU time that it took."""
    curves = section.curves
    rows = []
    for arm in sorted(curves.arms, key=lambda arm: curves.mean(arm, curves.budgets[-1]).mean):
        cells = [with_interval(curves.mean(arm, budget)) for budget in curves.budgets]
        for budget in curves.budgets:
            cells.append("" if arm == BASELINE else _against(curves, arm, budget))
        time = _seconds_per_cost(section.runs, arm) / _seconds_per_cost(section.runs, BASELINE)
        rows.append((arm, *cells, f"{time:.2f}×"))
    head = (
        "strategy",
        *(f"error % at {budget:g}" for budget in curves.budgets),
        *(f"against {BASELINE} at {budget:g}" for budget in curves.budgets),
        "CPU time for the same cost",
    )
    return Table(head, tuple(rows), "Final errors, and differences seed by seed")


def _against(curves: BudgetCurves, arm: str, budget: float) -> str:
    return with_interval(curves.difference(arm, budget, BASELINE), signed=True)


def _seconds_per_cost(runs: Sequence[Run], arm: str) -> float:
    last = [run.points[-1] for run in runs if run.header.arm == arm]
    return statistics.median(point.cpu_seconds / point.cost for point in last)


def caption_of(runs: Sequence[Run]) -> str:
    """Return which seeds runs have, and what they were made on."""
    seeds = sorted({run.header.seed for run in runs})
    said = f"Seeds {seeds_of(seeds)}; 95 % t-intervals." if len(seeds) > 1 else f"Seed {seeds[0]}."
    return " ".join([said, *made_on(runs)])


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
