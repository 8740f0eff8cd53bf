"""Write the tables of the README and the documentation from the committed records.

    PYTHONPATH=. python docs/evidence.py

A table stands between `<!-- KIND PATH -->`, with a kind of `TABLES` and a path from the root, and
`<!-- end -->`. A test fails where a page and its records disagree. The figures of each comparison,
of each record of `bench`, of the papers redone and of the study are drawn when the documentation
is built.
"""

import json
import re
import shutil
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import selective_backprop as sb
from benchmarks.pages import TABLES as OF_BENCHMARKS
from reproductions.auto.page import (
    caption_of,
    compose,
    draw_page,
    overview,
)
from reproductions.auto.protocol import STAGES
from reproductions.auto.results import Results, read_results
from reproductions.drawing import save
from reproductions.papers import committed, figures_at, gather
from selective_backprop_lab.analysis.grouping import gather as compare
from selective_backprop_lab.analysis.statistics import final_loss
from selective_backprop_lab.analysis.summary import to_markdown
from selective_backprop_lab.analysis.worth import Worth, mean_worth
from selective_backprop_lab.bench.figure import draw_bench
from selective_backprop_lab.bench.harness import Findings
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.report.figures import draw_comparison
from selective_backprop_lab.report.panels import SETTINGS

ROOT = Path(__file__).parents[1]
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            *("start", "measured", "processes", "advise", "audit", "auto", "language-models"),
            "zero-gradients",
        )
    ),
)
BASELINE, DEFAULT = "traditional", "auto"


def comparison(folder: str) -> str:
    """Return the table of a folder of records, with the command that made them."""
    runs = read_runs(ROOT / folder)
    commands = dict.fromkeys(run.header.command for run in runs)
    made = "\n".join(f"    {command}" for command in commands)
    return f"{to_markdown(compare(runs))}\nMade by\n\n{made}\n"


@cache
def results_of(stage: str) -> list[Results]:
    """Return what is on record of a stage of the study."""
    return read_results(STAGES[stage], ROOT / "records/study" / stage)


def study(folder: str) -> str:
    """Return a stage of the study at a glance, with the command that made it."""
    results = [each for each in results_of(Path(folder).name) if each.runs]
    if not results:
        return "Nothing is on record yet.\n"
    runs = [run for each in results for run in each.runs]
    commands = dict.fromkeys(run.header.command for run in runs)
    lines = [overview(results).to_markdown(), caption_of(runs), "", "Made by", ""]
    return "\n".join([*lines, *(f"    {command}" for command in commands), ""])


GROUPS = {  # of workloads in the README's picture, by the first of their kinds that is named
    "noisy": "wrong labels",
    "table": "clean tables",
    "fine-tuning": "fine-tuning",
    "text": "source code",
    "near-copies": "skewed or repeated",
    "skewed": "skewed or repeated",
    "copies": "skewed or repeated",
    "clean": "images as published",
}
LIMITS = 1 / 4, 32  # of worths in the picture; those beyond are drawn at its edge


def worths_by_group() -> dict[str, list[tuple[str, Worth]]]:
    """Return what `auto` is worth in each cell of the confirmation, with the cell's name."""
    found: dict[str, list[tuple[str, Worth]]] = {each: [] for each in (*GROUPS.values(), "clicks")}
    for each in results_of("confirm"):
        kinds = each.workload.kinds
        group = next(words for kind, words in GROUPS.items() if kind in kinds)
        if each.workload.measure is final_loss:  # what is asked for are probabilities
            group = "clicks"
        for length in each.lengths:
            worth = each.worth(DEFAULT, length, "cost")
            found[group].append((f"{each.workload.title} at {length:g}", worth))
    means = {group: mean_worth([each for _, each in cells]).times for group, cells in found.items()}
    return {group: found[group] for group in sorted(found, key=lambda each: -means[each])}


def draw_worths(path: Path) -> None:
    """Draw the README's picture: how many times its cost `auto` is worth, by kind of data."""
    groups = worths_by_group()
    style = {**SETTINGS, "font.size": 10, "axes.titlesize": 10.5}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(7.2, 0.9 + 0.36 * len(groups)), layout="constrained")
        axes = figure.subplots()
        axes.axvspan(1, LIMITS[1] * 1.3, color="#e5f3ee", lw=0, zorder=0)
        axes.axvline(1, color="#444444", lw=1)
        for row, cells in enumerate(groups.values()):
            times = np.array([worth.times for _, worth in cells])
            inside = times.clip(*LIMITS)
            places = row + np.linspace(-0.2, 0.2, len(times)) * (len(times) > 1)
            colours = [_colour(worth) for _, worth in cells]
            axes.scatter(inside, places, s=24, color=colours, lw=0, zorder=3)
            mean = mean_worth([worth for _, worth in cells])
            axes.plot([mean.times] * 2, [row - 0.33, row + 0.33], color="#222222", lw=2, zorder=2)
            axes.text(LIMITS[1] * 1.5, row, mean_words(mean), va="center", fontsize=9.5)
        axes.set_yticks(range(len(groups)), groups)
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.set_xscale("log", base=2)
        axes.set_xlim(LIMITS[0] / 1.3, LIMITS[1] * 1.3)
        ticks = [1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32]
        axes.set_xticks(ticks, ["≤ ¼", "½", "1", "2", "4", "8", "16", "≥ 32"])
        axes.minorticks_off()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.suptitle(
            "What a pass with auto is worth in passes of traditional training that end at\n"
            "the same error. Dots are jobs and lengths, grey if the interval holds 1; bars, means.",
            x=0.01,
            ha="left",
            fontsize=10,
        )
        figure.savefig(path, metadata={"Date": None})


def _colour(worth: Worth) -> str:
    if worth.low > 1:
        return "#009e73"
    return "#d55e00" if worth.high < 1 else "#9a9a9a"


def pays(folder: str) -> str:
    """Return in words what `auto` is worth by kind of data, and where it is furthest ahead."""
    groups = worths_by_group()
    means = {name: mean_worth([each for _, each in cells]) for name, cells in groups.items()}
    said = {
        name: f"{mean.side}{mean.times:.1f}".replace(">", "more than ")
        for name, mean in means.items()
    }
    results = {each.workload.title: each for each in results_of(Path(folder).name)}
    title, length = "Fashion-MNIST, 20 % wrong", 16.0
    errors = [results[title].error(arm, length) for arm in (DEFAULT, BASELINE)]
    ours, plain = (f"{each.mean:.1f}" for each in errors)
    wrong = groups["wrong labels"]
    lost = [name for name, mean in means.items() if mean.times < 0.95 and mean.side != ">"]
    verdict = f" **On {' and '.join(lost)} it loses: train on everything there.**" if lost else ""
    return (
        f"Where labels are wrong, a pass with `auto` is worth {said['wrong labels']} passes of "
        f"traditional training, in the mean of {len(wrong)} jobs and lengths: with a fifth of\n"
        f"Fashion-MNIST's labels wrong, {length:g} passes end at {ours} % error, not {plain}. "
        f"On skewed or repeated images it is worth {said['skewed or repeated']}, in fine-tuning\n"
        f"{said['fine-tuning']}, on clean tables {said['clean tables']}, on images as published "
        f"{said['images as published']}, on source code {said['source code']}, on clicks "
        f"{said['clicks']}.{verdict}\n"
    )


def mean_words(mean: Worth) -> str:
    """Return a mean worth as the picture has it."""
    return f"{mean.side}{mean.times:.2f}×"


TABLES = {
    "compare": comparison,
    "study": study,
    "pays": pays,
    **OF_BENCHMARKS,
}


BLOCK = re.compile(rf"<!-- ({'|'.join(TABLES)}) (\S+) -->\n.*?<!-- end -->", flags=re.DOTALL)


def rewritten(page: str) -> str:
    """Return a page with each of its tables as its records have it."""

    def fresh(match: re.Match[str]) -> str:
        kind, path = match.groups()
        return f"<!-- {kind} {path} -->\n{TABLES[kind](path)}<!-- end -->"

    return BLOCK.sub(fresh, page)


def draw_figures(folder: Path) -> None:
    """Draw a figure for each comparison and bench that a page shows, named as its records are."""
    for page in PAGES:
        for kind, path in BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind == "compare":
                draw_comparison(compare(read_runs(ROOT / path)), folder / f"{Path(path).name}.png")
            elif kind == "bench":
                record = json.loads((ROOT / path).read_text(encoding="utf-8"))
                draw_bench(Findings.read(record), folder / f"bench-{Path(path).stem}.png")


def draw_pages(folder: Path) -> None:
    """Copy the pages of the papers redone and of the study into a folder, and draw their figures.

    What shows images or classes of a data set is drawn where that is at hand, and copied elsewhere.
    """
    papers = (f"papers/{scale}" for scale in ("small", "cifar10", "saturated"))
    for name in (*papers, *(f"study/{stage}" for stage in STAGES)):
        source, target = ROOT / "records" / name, folder / name
        pages = shutil.ignore_patterns("runs")
        shutil.copytree(source, target, ignore=pages, dirs_exist_ok=True)
        if name.startswith("study"):
            stage = STAGES[source.name]
            draw_page(compose(stage, results_of(source.name)), target, svg=False)
            continue
        order = committed(source)
        for figure in figures_at(order.scale):
            try:
                if figure.draw is not None:
                    drawn = figure.draw(gather(figure, order, {}))
                    save(drawn, target / figure.name, svg=False)
            except sb.DataError:
                continue


if __name__ == "__main__":
    draw_worths(ROOT / "docs" / "worth.svg")
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
