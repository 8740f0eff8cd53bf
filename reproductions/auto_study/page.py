"""What is written of a stage: a figure and two tables for each ground, and a count of the goals."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reproductions.auto_study.drawing import draw_ground
from reproductions.auto_study.fronts import Front, front_of
from reproductions.auto_study.outcomes import Goal, Outcome, goals
from reproductions.auto_study.protocol import HARDEST, OURS, RANDOM, Ground, Stage
from reproductions.jiang2019.drawing import save
from reproductions.jiang2019.text import Grid, escaped, percent
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.analysis.run_summary import listed, machine_of, origins, seeds_of
from selective_backprop.lab.analysis.tables import with_interval
from selective_backprop.lab.records.schema import Run

AT_A_GLANCE = (RANDOM, HARDEST, "infobatch", "easy-skip", OURS)


@dataclass(frozen=True)
class Section:
    """One ground with its records.

    Attributes:
        ground: what was planned.
        runs: finished.
        missing: how many are not on record.
    """

    ground: Ground
    runs: tuple[Run, ...]
    missing: int

    @cached_property
    def front(self) -> Front:
        """The errors at each budget."""
        return front_of(self.runs, self.ground.budgets)

    @property
    def name(self) -> str:
        """Of its figure's file."""
        kept = "".join(c if c.isalnum() else " " for c in self.ground.title.lower())
        return "-".join(kept.split())


@dataclass(frozen=True)
class Page:
    """What is said of a stage.

    Attributes:
        text: in Markdown.
        goals: what became of them, by title of the ground.
        shown: the sections that have enough runs to be judged.
    """

    text: str
    goals: Mapping[str, list[Goal]]
    shown: tuple[Section, ...]


def compose(stage: Stage, sections: Sequence[Section]) -> Page:
    """Judge every ground on which `auto` and traditional training were run at each budget."""
    shown = tuple(each for each in sections if {BASELINE, OURS} <= set(each.front.arms))
    judged = {each.ground.title: [*goals(each.ground, each.front)] for each in shown}
    head = [f"# {stage.title}", "", *_summed_up(judged), "", "<!-- sections -->", ""]
    parts = [line for each in shown for line in _written(each, judged[each.ground.title])]
    return Page("\n".join([*head, overview(shown).as_markdown(), *parts]), judged, shown)


def write_page(page: Page, folder: Path) -> None:
    """Write `index.md`, and a figure for each ground."""
    for section in page.shown:
        figure = draw_ground(section.ground, section.front, _caption(section))
        save(figure, folder / section.name)
    (folder / "index.md").write_text(page.text, encoding="utf-8")


def tally(found: Sequence[Goal]) -> str:
    """Return how many goals have each outcome: `reached 5, missed 1`."""
    counted = Counter(goal.outcome for goal in found)
    return ", ".join(f"{each} {counted[each]}" for each in Outcome if counted[each]) or "no goal"


def overview(sections: Sequence[Section]) -> Grid:
    """Return where traditional training ended on each ground, and how far from it others did."""
    shown = [arm for arm in AT_A_GLANCE if any(arm in each.front.arms for each in sections)]
    rows = []
    for section in sections:
        front = section.front
        for budget in front.budgets:
            base = with_interval(front.mean(BASELINE, budget))
            differences = [
                with_interval(front.difference(arm, budget, BASELINE), signed=True) for arm in shown
            ]
            rows.append((f"{section.ground.title} at {budget:g}", base, *differences))
    return Grid(
        f"Final error of {BASELINE} training in %, and how many points higher the others ended, "
        "seed by seed, at the same cost in passes",
        ("", BASELINE, *shown),
        tuple(rows),
    )


def errors_table(front: Front, runs: Sequence[Run]) -> Grid:
    """Return where each strategy ended at each budget, and the CPU time that it took."""
    taken = {arm: _seconds_per_cost(runs, arm) for arm in front.arms}
    rows = []
    order = sorted(front.arms, key=lambda arm: front.mean(arm, front.budgets[-1]).mean)
    for arm in order:
        cells = [with_interval(front.mean(arm, budget)) for budget in front.budgets]
        differences = [
            ""
            if arm == BASELINE
            else with_interval(front.difference(arm, b, BASELINE), signed=True)
            for b in front.budgets
        ]
        time = f"{taken[arm] / taken[BASELINE]:.2f}×" if taken.get(BASELINE) else "–"
        rows.append((arm, *cells, *differences, time))
    head = (
        "strategy",
        *(f"error % at {budget:g}" for budget in front.budgets),
        *(f"against {BASELINE} at {budget:g}" for budget in front.budgets),
        "CPU time for the same cost",
    )
    return Grid("Final errors, and differences seed by seed", head, tuple(rows))


def goals_table(found: Sequence[Goal]) -> Grid:
    """Return what was asked for, whether it was reached, and what was measured."""
    rows = tuple((goal.words, str(goal.outcome), goal.measured) for goal in found)
    return Grid(f"What is asked of {OURS}", ("goal", "outcome", "measured"), rows)


def _seconds_per_cost(runs: Sequence[Run], arm: str) -> float:
    found = [
        run.points[-1].cpu_seconds / run.points[-1].cost for run in runs if run.header.arm == arm
    ]
    return statistics.median(found)


def _written(section: Section, found: Sequence[Goal]) -> list[str]:
    title = section.ground.title
    return [
        f"## {title}",
        "",
        f"![Error against cost on {title}, and differences to {BASELINE}.]({section.name}.png)",
        "",
        errors_table(section.front, section.runs).as_markdown(),
        "",
        goals_table(found).as_markdown(),
        "",
        escaped(_caption(section)),
        "",
    ]


def _summed_up(judged: Mapping[str, list[Goal]]) -> list[str]:
    everything = [goal for found in judged.values() for goal in found]
    lines = [
        f"Of {len(everything)} goals: {tally(everything)}. A goal is *reached* where the whole "
        "95 % interval over seeds lies on the side asked for, *missed* where it lies on the other, "
        "and *unresolved* where it holds both. The best of the others is chosen by the same errors "
        "that it is held against, which favours it.",
        "",
    ]
    return lines + [f"- {title}: {tally(found)}" for title, found in judged.items()]


def caption_of(runs: Sequence[Run]) -> str:
    """Return which seeds runs have, and what they were made on."""
    seeds = sorted({run.header.seed for run in runs})
    parts = [
        f"Seeds {seeds_of(seeds)}; 95 % t-intervals." if len(seeds) > 1 else f"Seed {seeds[0]}.",
        f"{listed(dict.fromkeys(machine_of(run.header.hardware) for run in runs))}; code "
        f"{listed(dict.fromkeys(run.header.code_version for run in runs))}.",
        *origins(runs),
    ]
    return " ".join(parts)


def _caption(section: Section) -> str:
    ground, recipe = section.ground, section.ground.recipe
    amount = "all" if ground.limit is None else f"{ground.limit:,}"
    flipped = f", {percent(ground.noise)} of the labels flipped" if ground.noise else ""
    parts = [
        f"{ground.title}: {amount} training examples{flipped}, {recipe.model}, batch "
        f"{recipe.batch_size}; each learning rate decays over its own run.",
        caption_of(section.runs),
    ]
    if section.missing:
        parts.append(f"Left out: {section.missing} runs, not on record.")
    return " ".join(parts)
