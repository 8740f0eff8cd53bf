"""The page of a stage: what each strategy is worth, its goals, learning rates and figures."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reproductions import drawing
from reproductions.auto.figures import draw_profile, draw_workload
from reproductions.auto.goals import goals
from reproductions.auto.protocol import FACTORS, ORDER, OURS, Stage
from reproductions.auto.results import Measure, Results
from selective_backprop_lab.analysis.class_errors import error_as_it_comes
from selective_backprop_lab.analysis.grouping import BASELINE
from selective_backprop_lab.analysis.run_summary import seeds_of
from selective_backprop_lab.analysis.statistics import Axis
from selective_backprop_lab.analysis.tables import Table, escaped, percent, with_interval
from selective_backprop_lab.analysis.verdict import GOALS, Finding, tally
from selective_backprop_lab.analysis.worth import mean_worth
from selective_backprop_lab.records.schema import Run

PROFILE = "profile"
_EDGE = {-1: "↓", 0: "", 1: "↑"}
_TUNED_BY = {1: "another seed", 2: "the mean of 2 other seeds"}


@dataclass(frozen=True)
class Page:
    """What is said of a stage."""

    text: str  # in Markdown
    overview: Table
    goals: Sequence[Finding]
    shown: tuple[Results, ...]  # those with finished runs


def compose(stage: Stage, results: Sequence[Results]) -> Page:
    """Judge a stage by what is on record, and say what is missing."""
    shown = tuple(each for each in results if each.runs)
    found = [*goals(shown)]
    lines = [f"# {stage.title}", "", *_missing(results), ""]
    if found:
        rows = [(goal.claim, GOALS[goal.verdict], goal.measured) for goal in found]
        lines += [
            f"Of {len(found)} goals: {tally(found, GOALS)}. A goal is *reached* where the whole "
            "95 % interval lies on the side asked for, *missed* where it lies on the other, and "
            "*unresolved* where it holds both. The best of the others is chosen by the same errors "
            "that it is held against, which favours it.",
            "",
            Table(("goal", "outcome", "measured"), rows, f"What is asked of {OURS}").to_markdown(),
            "",
        ]
    if shown:
        lines += [
            overview(shown).to_markdown(),
            "",
            *([skewed.to_markdown(), ""] if (skewed := as_it_comes(shown)).rows else []),
            by_kind(shown).to_markdown(),
            "",
            f"![Performance profile of all strategies.]({PROFILE}.png)",
            "",
            budget(shown).to_markdown(),
            "",
            escaped(caption_of([run for each in shown for run in each.runs])),
            "",
        ]
    for each in shown:
        words = f"Final error against cost and against CPU seconds on {each.workload.title}."
        lines += [
            f"## {each.workload.title}",
            "",
            f"![{words}]({each.workload.name}.png)",
            "",
            worth_table(each).to_markdown(),
            "",
            rates_table(each).to_markdown(),
            "",
            escaped(_caption(each)),
            "",
        ]
    return Page("\n".join(lines), overview(shown), found, shown)


def draw_page(page: Page, folder: Path, *, svg: bool = True) -> None:
    """Draw the profile, and a figure for each workload of a page."""
    folder.mkdir(parents=True, exist_ok=True)
    if page.shown:
        drawing.save(draw_profile(page.shown), folder / PROFILE, svg=svg)
    for each in page.shown:
        figure = draw_workload(each, _caption(each))
        drawing.save(figure, folder / each.workload.name, svg=svg)


def overview(shown: Sequence[Results], arms: Sequence[str] = ORDER) -> Table:
    """Return what strategies are worth on each workload, at each length."""
    title = (
        f"Final error of {BASELINE} training, and what the others are worth: how many times more "
        f"{BASELINE} training reaches the same error"
    )
    unit = next((each.workload.unit for each in shown), "error")
    return _worths(shown, arms, title, unit)


def as_it_comes(shown: Sequence[Results], arms: Sequence[str] = ORDER) -> Table:
    """Return the same by the error on classes as frequent as in training, where these are skewed.

    The error of the other tables is on test sets as published, of classes about as frequent as
    each other.
    """
    skewed = [each for each in shown if each.workload.composition.skew]
    title = (
        "The same where classes are skewed, by the error with each class weighed by its share of "
        "the training data; learning rates are those of the balanced error"
    )
    return _worths(skewed, arms, title, "error in %", error_as_it_comes)


def _worths(
    shown: Sequence[Results],
    arms: Sequence[str],
    title: str,
    unit: str,
    measure: Measure | None = None,
) -> Table:
    present = [arm for arm in arms if any(arm in each.arms for each in shown)]
    rows = [
        (
            f"{each.workload.title} at {length:g}",
            with_interval(each.error(BASELINE, length, measure=measure)),
            *(each.worth(arm, length, measure=measure).text for arm in present),
        )
        for each in shown
        for length in each.lengths
    ]
    return Table(("", f"{BASELINE}, {unit}", *present), rows, title)


def by_kind(shown: Sequence[Results], arms: Sequence[str] = ORDER) -> Table:
    """Return the mean worth of each strategy over all cells of a kind, in passes and in seconds."""
    present = [arm for arm in arms if any(arm in each.arms for each in shown)]
    kinds = ["all", *dict.fromkeys(kind for each in shown for kind in each.workload.kinds)]
    axes: tuple[tuple[str, Axis], ...] = (("passes", "cost"), ("CPU seconds", "cpu_seconds"))
    rows = []
    for words, axis in axes:
        for kind in kinds:
            cells = [
                (each, length)
                for each in shown
                if kind in ("all", *each.workload.kinds)
                for length in each.lengths
            ]
            means = (
                mean_worth([each.worth(arm, length, axis) for each, length in cells]).text
                for arm in present
            )
            rows.append((f"{kind}, {len(cells)} cells, equal {words}", *means))
    title = "Worth by kind of data: geometric means, with a jackknife's interval over seeds"
    return Table(("", *present), rows, title)


def budget(shown: Sequence[Results]) -> Table:
    """Return how many runs there are of each kind, and the CPU minutes that they took."""
    kinds: dict[str, Callable[[Results], Iterable[Run]]] = {
        "tuning": lambda each: each.tuning,
        BASELINE: lambda each: (run for run in each.runs if run.header.arm == BASELINE),
        "others": lambda each: (run for run in each.runs if run.header.arm != BASELINE),
    }

    def row(title: str, some: Sequence[Results]) -> tuple[str, ...]:
        parts = [[run for each in some for run in kind(each)] for kind in kinds.values()]
        minutes = (sum(run.points[-1].cpu_seconds for run in part) / 60 for part in parts)
        counts, missing = map(str, map(len, parts)), sum(each.missing for each in some)
        return title, *counts, *(f"{each:.1f}" for each in minutes), str(missing)

    rows = [row(each.workload.title, [each]) for each in shown]
    head = ("runs", *kinds, *(f"{kind}, CPU min" for kind in kinds), "missing or diverged")
    return Table(head, [*rows, row("all", shown)], "Run budget", ruled=(len(shown),))


def worth_table(results: Results) -> Table:
    """Return error, difference, worth and CPU time of each strategy at each length."""
    rows = []
    for length in results.lengths:
        for arm in (BASELINE, *results.arms):
            error = results.error(arm, length)
            if not error.seeds:
                continue
            usual = arm == BASELINE
            rows.append(
                (
                    f"{arm} at {length:g}",
                    with_interval(error),
                    "–" if usual else with_interval(results.difference(arm, length), signed=True),
                    *(
                        "1" if usual else results.worth(arm, length, axis).text
                        for axis in ("cost", "cpu_seconds")
                    ),
                    f"{_seconds(results, arm, length) / _seconds(results, BASELINE, length):.2f}×",
                )
            )
    head = (
        "strategy",
        results.workload.unit,
        f"against {BASELINE}, points",
        "worth",
        "worth in CPU seconds",
        "CPU time",
    )
    return Table(head, rows)


def rates_table(results: Results) -> Table:
    """Return the learning rate that each strategy took at each length."""
    lengths = sorted({length for _, length in results.rates})

    def cell(arm: str, length: object) -> str:
        found = results.rates.get((arm, length))
        if found is None:
            return ""
        # Where a rate beyond is allowed, and not on record, it diverged with every seed.
        edge = found.edge if results.workload.is_bounded(found) else 0
        return f"{found.rate:g}{_EDGE[edge]}"

    arms = [arm for arm in ORDER if any(name == arm for name, _ in results.rates)]
    rows = [(arm, *(cell(arm, length) for length in lengths)) for arm in arms]
    tried = ", ".join(f"{factor * results.workload.recipe.learning_rate:g}" for factor in FACTORS)
    title = (
        f"Learning rates by length, the best of {tried}, and beyond these by factors of two until "
        f"it is not at the edge (↑, ↓: it is); by {_TUNED_BY[results.workload.tuning_seeds]}"
    )
    return Table(("", *(length.short for length in lengths)), rows, title)


def caption_of(runs: Sequence[Run]) -> str:
    """Return which seeds runs have, and what they were made on."""
    seeds = sorted({run.header.seed for run in runs})
    said = f"Seeds {seeds_of(seeds)}; 95 % intervals." if len(seeds) > 1 else f"Seed {seeds[0]}."
    return " ".join([said, *drawing.made_on(runs)])


def _caption(results: Results) -> str:
    workload, made = results.workload, results.workload.composition
    amount = made.places or workload.limit
    parts = [
        f"{amount:,} training examples" if amount else "all training examples",
        *([f"skew {made.skew:g}"] if made.skew else []),
        *([f"copies {made.copies:g}"] if made.copies else []),
        *([f"near-copies {made.near_copies}"] if made.near_copies else []),
        *([f"{percent(made.noise)} wrong labels ({made.noise_kind})"] if made.noise else []),
        workload.recipe.model,
        f"batch {workload.recipe.batch_size}",
        f"kinds: {', '.join(workload.kinds)}",
    ]
    words = f"{workload.title}: {', '.join(parts)}. {caption_of(results.runs)}"
    return words + (f" Missing or diverged: {results.missing} runs." if results.missing else "")


def _missing(results: Sequence[Results]) -> list[str]:
    absent = [each.workload.title for each in results if not each.runs]
    runs = sum(each.missing for each in results if each.runs)
    said = []
    if absent:
        said.append(f"Not on record yet: {'; '.join(absent)}.")
    if runs:
        among = "Of the others " if absent else ""
        said.append(f"{among}{runs} runs are missing or diverged.")
    return [" ".join(said)] if said else []


def _seconds(results: Results, arm: str, length: float) -> float:
    runs = results.groups[arm, length].runs
    return sum(run.points[-1].cpu_seconds for run in runs) / len(runs) if runs else math.nan
