"""Write the tables of the README and the documentation from the committed records.

    PYTHONPATH=. python docs/evidence.py

A table stands between `<!-- KIND PATH -->`, with a kind of `TABLES` and a path from the root, and
`<!-- end -->`. A test fails where a page and its records disagree. The figures of each comparison
and of the papers redone are drawn when the documentation is built.
"""

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

import selective_backprop as sb
import selective_backprop_lab as lab
from benchmarks.pages import TABLES as OF_BENCHMARKS
from benchmarks.pages import files_of, made_by
from reproductions.auto.protocol import OURS, STAGES
from reproductions.auto.results import Results, judged, read_results
from reproductions.auto.study import adds_up, by_job, by_kind, compose, counts, made_of
from reproductions.drawing import save
from reproductions.headline import draw_learned
from reproductions.papers import committed, figures_at, gather
from reproductions.streams import table_of
from selective_backprop_lab.analysis.comparison import arms, compared
from selective_backprop_lab.analysis.facts import facts, notes
from selective_backprop_lab.analysis.findings import conclusion, gains
from selective_backprop_lab.analysis.queries import counted, final_error
from selective_backprop_lab.analysis.summary import comparison_table
from selective_backprop_lab.analysis.tables import Table, escaped, with_interval
from selective_backprop_lab.report.figures import draw_comparison
from selective_backprop_lab.report.panels import SETTINGS

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
INSTEAD = {
    "auto": "`auto`",
    "traditional+smoothing-0.3": "label smoothing by 0.3",
    "auto+smoothing-0.3": "**`auto` and label smoothing**",
    "traditional+robust-loss": "generalised cross-entropy, q = 0.3",
    "traditional+trimming": "without the fifth of each batch with the highest losses",
    "traditional+progressive": "images of half the side in the first third",
    "random-backprop": "a random third of the examples",
    "reseeded": "other random seeds: what chance does",
}
LEFT_OUT = ("over plain training of", "cost passes", "scored", "trained", "wall s")
WIDEST = 16.0  # per cent, of the picture of gains; two intervals of breast cancer go beyond


def comparison(folder: str) -> str:
    """Return what a folder of records shows, its table, and the command that made them."""
    runs = compared(lab.frame(ROOT / folder))
    whole = comparison_table(runs)
    kept = [place for place, column in enumerate(whole.set_columns) if column.name not in LEFT_OUT]
    rows = [[row[place] for place in kept] for row in whole.rows]
    table = Table([whole.set_columns[place] for place in kept], rows, whole.title, notes(runs))
    return f"{escaped(conclusion(runs).text)}\n\n{table.to_markdown()}\n{_commands(runs)}"


def methods(folders: str) -> str:
    """Return what the same strategies gain in several folders, each judged by itself."""
    names = files_of(folders)
    found = [compared(lab.frame(ROOT / name)) for name in names]
    cells: dict[str, list[str]] = {}
    for runs in found:
        own_gains = {each.label: each for each in gains(runs)}
        for label, own in arms(counted(runs)).items():
            change = ""
            if gain := own_gains.get(label):
                change = with_interval(gain.change, signed=True)
                change += f" **{gain.verdict}**" if gain.verdict in ("gains", "loses") else ""
            row = cells.setdefault(label, [label])
            row += [f"{final_error(own).mean:.2f}", change]
    every = pd.concat(found)
    said = facts(every)
    title = f"{said['model']} · {said['length']} · seeds {said['seeds']} · {said['hardware']}"
    heads = [f"{Path(name).name}: {what}" for name in names for what in ("error %", "gain, points")]
    table = Table(
        ["strategy @ passes", *heads], [*cells.values()], f"{title} · code {said['code']}"
    )
    return f"{table.to_markdown()}\n{_commands(every)}"


def _commands(runs: pd.DataFrame) -> str:
    return made_by(runs.sort_index().command.unique())


@cache
def results_of(stage: str) -> list[Results]:
    """Return what is on record of a stage of the study."""
    return read_results(STAGES[stage], ROOT / "records/study" / stage)


def instead(results: list[Results]) -> Table:
    """Return how often `auto` gains, what a person would do instead, and both."""
    table = counts(results)
    said = {row[0]: row[1:] for row in table.rows}
    rows = [(words, *said[arm]) for arm, words in INSTEAD.items() if arm in said]
    title = "What auto gains, what you could do instead, and both"
    return Table(("you train with", *table.columns[1:]), rows, title)


def of_stage(*parts: Callable[[list[Results]], Table | str]) -> Callable[[str], str]:
    """Return what writes tables and sentences of a stage of the study, given its folder."""

    def write(folder: str) -> str:
        found = results_of(Path(folder).name)
        said = (part(found) for part in parts)
        texts = (each.to_markdown() if isinstance(each, Table) else each for each in said)
        return "\n\n".join(text.rstrip() for text in texts) + "\n"

    return write


def draw_gains(path: Path) -> None:
    """Draw the README's picture: the gain of `auto` in each job, with its interval, sorted."""
    found = ((job, job.results.change(OURS, job.length)) for job in judged(results_of("confirm")))
    jobs = sorted(found, key=lambda each: each[1].mean)
    colours = {"gains": "#009e73", "level": "#9a9a9a", "loses": "#d55e00"}
    with matplotlib.rc_context({**SETTINGS, "font.size": 8.5}):
        figure = Figure(figsize=(7.2, 5.6), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color="#444444", lw=1)
        for row, (job, change) in enumerate(jobs):
            look = {"color": colours[job.verdict], "ms": 4}
            axes.errorbar(change.mean, row, xerr=change.half_width, fmt="o", lw=1.4, **look)
        axes.set_yticks(range(len(jobs)), [job.title for job, _ in jobs])
        axes.set_ylim(len(jobs) - 0.5, -0.5)
        axes.set_xlim(-WIDEST, WIDEST)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel(
            "change of the error with auto, in %, against the best plain\n"
            "training of the same cost in passes; 95 % intervals over ten seeds"
        )
        figure.savefig(path, metadata={"Date": None})


TABLES = {
    "compare": comparison,
    "methods": methods,
    "study": of_stage(compose),
    "strategies": of_stage(by_job, made_of),
    "pays": of_stage(by_kind),
    "rivals": of_stage(counts, made_of),
    "instead": of_stage(instead),
    "adds": of_stage(adds_up),
    "streams": lambda folder: table_of(ROOT / folder).to_markdown(),
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
    """Draw a figure for each comparison that a page shows, named as its records are."""
    for page in PAGES:
        for kind, path in BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind == "compare":
                draw_comparison(compared(lab.frame(ROOT / path)), folder / f"{Path(path).name}.png")


def draw_pages(folder: Path) -> None:
    """Copy the pages of the papers redone into a folder, and draw their figures.

    What shows images or classes of a data set is drawn where that is at hand, and copied elsewhere.
    """
    for scale in ("small", "cifar10", "saturated", "redundant", "nets", "gpu"):
        source, target = ROOT / "records/papers" / scale, folder / "papers" / scale
        pages = shutil.ignore_patterns("runs")
        shutil.copytree(source, target, ignore=pages, dirs_exist_ok=True)
        order = committed(source)
        for figure in figures_at(order.scale):
            try:
                drawn = figure.draw(gather(figure, order, {}))
                if drawn is not None:
                    save(drawn, target / figure.name, svg=False)
            except sb.DataError:
                continue
    draw_learned(folder / "papers" / "learned")


if __name__ == "__main__":
    draw_gains(ROOT / "docs" / "gains.svg")
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
