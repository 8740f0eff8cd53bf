"""Write the tables of the README and the documentation from the committed records.

    PYTHONPATH=. python docs/evidence.py

A table stands between `<!-- KIND PATH -->`, with a kind of `TABLES` and a path from the root, and
`<!-- end -->`. A test fails where a page and its records disagree. The figures of each comparison
and of the papers redone are drawn when the documentation is built.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import selective_backprop as sb
import selective_backprop_lab as lab
from benchmarks.pages import TABLES as OF_BENCHMARKS
from benchmarks.pages import files_of, made_by
from reproductions.auto import recovery
from reproductions.auto.protocol import OURS, STAGES
from reproductions.auto.results import VERDICTS, Judged, Results, judged, read_results
from reproductions.auto.study import (
    adds_up,
    by_job,
    by_kind,
    compose,
    counts,
    made_of,
    measured,
    of_parts,
)
from reproductions.drawing import save
from reproductions.headline import draw_learned
from reproductions.jiang2019.times import log_speed
from reproductions.papers import FIGURES as PAPERS
from reproductions.papers import committed, figures_at, gather
from reproductions.streams import table_of
from selective_backprop_lab.analysis.comparison import arms, compared
from selective_backprop_lab.analysis.estimates import holm
from selective_backprop_lab.analysis.facts import facts, listed, notes
from selective_backprop_lab.analysis.findings import conclusion, gains
from selective_backprop_lab.analysis.queries import BASELINE, counted, final_error
from selective_backprop_lab.analysis.summary import comparison_table
from selective_backprop_lab.analysis.tables import Column, Table, escaped, with_interval
from selective_backprop_lab.records.provenance import machine_of
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
NUMBER = "recovery"  # of the picture of gains
HIGHEST = -70, 35  # per cent, of the picture of gains; intervals of breast cancer go beyond
KINDS = {  # with Okabe and Ito's colours
    "images as published": "#0072b2",
    "skewed or repeated": "#009e73",
    "mostly easy": "#000000",
    "one frequent class": "#cc79a7",
    "fine-tuning": "#56b4e9",
    "wrong labels": "#e69f00",
    "tables": "#d55e00",
    "text": "#7a7a7a",
}


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


def added(results: list[Results]) -> Table:
    """Return what adds up, without what never does."""
    table = adds_up(results)
    never = ("averaging", "larger-batches", "smoothing-0.1", "trimming", "shared")
    return replace(table, rows=[row for row in table.rows if not row[0].endswith(never)])


def standing(results: list[Results]) -> Table:
    """Return how often each rule gains, also if all jobs of all rules are judged together."""
    found = {arm: judged(results, arm) for arm in STAGES["rules"].arms if arm != BASELINE}
    together = iter(holm([job.gain for jobs in found.values() for job in jobs]))
    rows = []
    for arm, jobs in found.items():
        sides = Counter(next(together) for _ in jobs)
        verdicts = Counter(job.verdict for job in jobs)
        changes = pd.Series([job.results.change(arm, job.length).mean for job in jobs], dtype=float)
        ends = ", ".join(f"{each:+.0f}" for each in changes.quantile([0.5, 0, 1]))
        timed = Counter(job.verdict for job in judged(results, arm, Results.gain_in_time))
        if jobs:
            counted = [str(verdicts[each]) for each in VERDICTS.values()]
            sure = f"{sides['lower']}, {sides['higher']}"
            in_time = ", ".join(str(timed[each]) for each in VERDICTS.values()) if timed else "–"
            name = arm.rpartition(":")[2]
            rows.append((name, str(len(jobs)), *counted, sure, ends.replace("-", "−"), in_time))
    rows.sort(key=lambda row: int(row[4]) - int(row[2]))
    head = ("rule", "jobs", *VERDICTS.values(), "in the whole table: gains, loses")
    head += ("change of the error, %: median, from, to", "at equal CPU time: gains, level, loses")
    return Table(head, rows, "Rules against the best plain training of the same cost")


def of_stage(*parts: Callable[[list[Results]], Table | str]) -> Callable[[str], str]:
    """Return what writes tables and sentences of stages of the study, given their folders."""

    def write(folders: str) -> str:
        found = [each for name in files_of(folders) for each in results_of(Path(name).name)]
        said = (part(found) for part in parts)
        texts = (each.to_markdown() if isinstance(each, Table) else each for each in said)
        return "\n\n".join(text.rstrip() for text in texts) + "\n"

    return write


Job = tuple[Judged, dict[str, float]]  # with the numbers of its workload
DRAWS = 1000  # of data sets, for an interval


def _recovery(folder: str) -> dict[str, Any]:
    return json.loads((ROOT / folder / "recovery" / recovery.FILE).read_text(encoding="utf-8"))


@cache
def foretold(folder: str) -> list[Job]:
    """Return each job that `auto` is judged in, with the numbers that may foretell its gain."""
    known = _recovery(folder)["workloads"]
    return [
        (job, known[name])
        for stage in recovery.READ
        for job in judged(each for each in results_of(stage) if len(each.runs))
        if (name := f"{stage}/{job.results.workload.name}") in known
    ]


def foretells(folder: str) -> str:
    """Return how each number ranks the jobs by their gains, and the gains by recovery."""
    jobs, record = foretold(folder), _recovery(folder)
    said = f"- {machine_of(record['hardware'])}; code {record['code_version']}."
    tables = "\n".join(table.to_markdown() for table in (ranking(jobs), by_recovery(jobs)))
    return f"{tables}\n{said}\n\n{made_by([record['command']])}"


def ranking(jobs: Sequence[Job]) -> Table:
    """Return how each number ranks the jobs by the gain of `auto`, relative to the error."""
    found = pd.DataFrame([numbers for _, numbers in jobs])
    found["gain"] = [-job.results.change(OURS, job.length).mean for job, _ in jobs]
    of = np.array([source_of(job) for job, _ in jobs])
    places = {each: np.flatnonzero(of == each) for each in np.unique(of)}
    draws = np.random.default_rng(0).choice([*places], (DRAWS, len(places)))
    drawn = [_ranked(found.iloc[np.concatenate([*map(places.get, draw)])]) for draw in draws]
    ends = pd.DataFrame(drawn).quantile([0.025, 0.975]).to_numpy()
    without = pd.DataFrame({each: _ranked(found[of != each]) for each in places}).T
    rows = []
    for name, every, low, high in zip(found, _ranked(found), *ends, strict=False):
        least = str(without[name].abs().idxmin())
        left = f"{without[name][least]:+.2f} ({least})"
        rows.append((str(name), f"{every:+.2f}", f"{low:+.2f} to {high:+.2f}", left))
    halves = pd.DataFrame([[_of_seeds(job, half) for half in (0, 1)] for job, _ in jobs])
    again = halves.corr(method="spearman").loc[0, 1]
    rows.append(("the gain with half of the seeds, by the other half", f"{again:+.2f}", "", ""))
    head = ("number", "rank correlation", "95 % interval", "nearest 0 without one data set")
    title = f"What goes with the gain of auto: {len(jobs)} jobs of {len(places)} data sets"
    signed = [[re.sub(r"-(?=\d\.)", "−", cell) for cell in row] for row in rows]
    return Table(head, signed, title)


def by_recovery(jobs: Sequence[Job]) -> Table:
    """Return how often `auto` gains where recovery is high, and where it is low."""
    low = [job for job, numbers in jobs if numbers[NUMBER] < 0.5]
    parts = {"½ or more": [job for job, _ in jobs if job not in low], "less than ½": low}
    right = [job for job in low if not job.results.workload.composition.noise]
    parts["less than ½, and no labels made wrong"] = right
    rows = []
    for words, own in parts.items():
        counted = Counter(job.verdict for job in own)
        ends = pd.Series([job.results.change(OURS, job.length).mean for job in own]).quantile(
            [0.5, 0, 1]
        )
        change = ", ".join(f"{each:+.1f}".replace("-", "−") for each in ends)
        found = (len(own), *(counted[each] for each in VERDICTS.values()))
        rows.append((words, *map(str, found), change))
    return Table((NUMBER, "jobs", *VERDICTS.values(), "change of the error, %"), rows)


def _of_seeds(job: Judged, half: int) -> float:
    runs = job.results.runs
    return replace(job.results, runs=runs[runs.seed % 2 == half]).change(OURS, job.length).mean


def _ranked(found: pd.DataFrame) -> pd.Series:
    """Return Spearman's correlation of each number with the gain."""
    return found.corr(method="spearman")["gain"].drop("gain")


def source_of(job: Judged) -> str:
    """Return the name of the data that a job is made of, which other jobs share."""
    return re.sub(r":.*|-three|-animals|-coarse", "", job.results.workload.recipe.data)


def draw_gains(path: Path, jobs: Sequence[Job]) -> None:
    """Draw the project's picture: the change of the error with `auto`, against recovery."""
    with matplotlib.rc_context({**SETTINGS, "font.size": 8.5}):
        figure = Figure(figsize=(7.2, 4.6), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color="#444444", lw=0.8)
        for kind, colour in KINDS.items():
            own = [each for each in jobs if each[0].results.workload.kind == kind]
            if own:
                x = [100 * numbers[NUMBER] for _, numbers in own]
                changes = [job.results.change(OURS, job.length) for job, _ in own]
                ends = [[getattr(each, end) for each in changes] for end in ("low", "high")]
                axes.vlines(x, *ends, color=colour, lw=0.6, alpha=0.45)
                fills = ["white" if job.verdict == "level" else colour for job, _ in own]
                look = {"s": 18, "edgecolors": colour, "lw": 0.9, "zorder": 3}
                axes.scatter(x, [each.mean for each in changes], c=fills, **look)
                axes.plot([], [], "o", ms=4.2, color=colour, label=kind)
        axes.plot([], [], "o", ms=4.2, color="#444444", mfc="white", label="hollow: level")
        axes.plot([], [], color="#444444", lw=0.6, label="95 % interval")
        axes.set_ylim(*HIGHEST)
        axes.set_xlim(0, 100)
        axes.grid(axis="y", color="#e6e6e6", lw=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel(
            "recovery, in %: of the examples whose label had less than even odds in the first\n"
            "pass of plain training, those that had even odds or better in the second"
        )
        axes.set_ylabel("change of the error with auto, in %")
        axes.legend(loc="lower left", frameon=False, handletextpad=0.2)
        figure.savefig(path, metadata={"Date": None})


FIRST = (
    (
        "GRPO or RLOO with TRL",
        "[`NonzeroGRPOTrainer`](docs/rollouts.md)",
        "**the same training** with {rows} % of the rows and {cpu} % of the CPU time, on three "
        "small tasks: it leaves out answers without a gradient",
    ),
    (
        "labels or copies that you doubt",
        "[`find_label_issues`](docs/audit.md), [`find_copies`](docs/copies.md)",
        "with a fifth of the labels wrong, **{right} % of the labels it names are wrong** (with a "
        "tenth, {tenth} %), and it "
        "names {found} % of the wrong ones. It finds all exact copies, and {near} % of shifted "
        "images of 28 pixels or more",
    ),
    (
        "data that are mostly easy, the rest not noise",
        "[`auto`](docs/pays.md)",
        "**{less} % fewer errors** than plain training of the same cost, on {gaining}; level "
        "in {level} of the other {others} jobs",
    ),
    (
        "labels that may be wrong",
        "[`auto` and label smoothing](docs/auto.md#instead-of-it-and-with-it)",
        "with a fifth of the labels wrong, errors are **{lower} points lower** than with "
        "smoothing alone in {won} of {noisy} jobs ({on}), and higher in {lost}",
    ),
    (
        "a net that learns nearly all its training data",
        "[`selective_backprop`, `stale_sb`](#selective-backprop)",
        "errors near those of plain training **{sb} and {stale} times as fast**, in cost. But "
        "plain training with a third of the epochs is {third} times as fast",
    ),
    (
        "anything else",
        "plain training",
        "`auto` is level in {same} of {jobs} jobs, and loses in {worse}. We saw no method that "
        "does better",
    ),
)


def first(folder: str) -> str:
    """Return the table on the first screen: what to take, and what is on record of it."""
    said = _of_rollouts(folder) | _of_faults(folder) | _of_study() | _of_paper(folder)
    rows = [[cell.format(**said) for cell in row] for row in FIRST]
    heads = [Column(name, left=True) for name in ("you have", "take", "what is on record")]
    return Table(heads, rows).to_markdown()


def _rows(folder: str, record: str) -> pd.DataFrame:
    found = json.loads((ROOT / folder / f"bench/{record}.json").read_text(encoding="utf-8"))
    return pd.DataFrame(found["rows"])


def _span(values: Iterable[float], form: str = ".0f") -> str:
    ends = sorted(abs(each) for each in values)
    return " to ".join(dict.fromkeys(f"{each:{form}}" for each in (ends[0], ends[-1])))


def _of_rollouts(folder: str) -> dict[str, str]:
    counts = _rows(folder, "trl-sampled").groupby(["arm", "task"])[["rows", "cpu_seconds"]].sum()
    shares = 100 * counts.loc["non-zero"] / counts.loc["GRPOTrainer"]
    return {"rows": _span(shares.rows), "cpu": _span(shares.cpu_seconds)}


def _issues(folder: str, name: str) -> list[str]:
    """Return how many of the suspects are wrong, and of the wrong labels suspects."""
    issues = _rows(folder, name).query("judged_by == 'the other half'")
    ours, named = (issues[key].map(lambda counts: counts["ours"]) for key in ("own", "numbers"))
    return [_span(100 * (ours / of).groupby(issues.data).mean()) for of in (named, issues.wrong)]


def _of_faults(folder: str) -> dict[str, str]:
    found = dict(zip(("right", "found"), _issues(folder, "label-issues"), strict=True))
    found["tenth"], _ = _issues(folder, "label-issues-tenth")
    made = _rows(folder, "copies").dropna(subset="made")
    shifted = made.settings.map(lambda settings: "near_copies" in settings)
    near, exact = made[shifted & (made.data != "digits")], made[~shifted]
    assert (exact.recalled == exact.made).all()  # the table says "all"
    return found | {"near": _span(100 * near.recalled / near.made)}


def _of_study() -> dict[str, str]:
    easy, instead = results_of("easy"), results_of("instead")
    every = judged([*easy, *results_of("confirm")])
    of_easy = judged(easy)
    gains = [job for job in of_easy if job.verdict == "gains"]
    titles = (job.results.workload.title for job in gains)
    data = dict.fromkeys(re.sub(", (.*)", r" (\1)", title) for title in titles)
    wrong = [each for each in instead if each.workload.composition.noise]
    beyond = partial(Results.added, other="traditional+smoothing-0.3")
    both = judged(wrong, "auto+smoothing-0.3", beyond)
    better = [job for job in both if job.verdict == "gains"]
    found = {
        "less": _span(job.results.change(OURS, job.length).mean for job in gains),
        "gaining": listed(data),
        "level": sum(job.verdict == "level" for job in of_easy),
        "others": len(of_easy) - len(gains),
        "lower": _span((job.gain.mean for job in better), ".1f"),
        "won": len(better),
        "on": listed(dict.fromkeys(job.title.partition(",")[0] for job in better)).replace(
            "D", "d"
        ),
        "noisy": len(both),
        "lost": sum(job.verdict == "loses" for job in both) or "none",
        "same": sum(job.verdict == "level" for job in every),
        "jobs": len(every),
        "worse": sum(job.verdict == "loses" for job in every) or "none",
    }
    return {key: str(value) for key, value in found.items()}


def _of_paper(folder: str) -> dict[str, str]:
    panels = gather(PAPERS["table-1"], committed(ROOT / folder / "papers/saturated"), {}).panels
    panels = [panel for panel in panels if "sb" in panel]

    def faster(arm: str) -> str:
        logs = (log_speed(each, each[arm], each["traditional"], "cost") for each in panels)
        return _span((np.exp(each.mean()) for each in logs), ".1f")

    return {arm: faster(arm) for arm in ("sb", "stale", "third")}


TABLES = {
    "first": first,
    "compare": comparison,
    "methods": methods,
    "study": of_stage(compose),
    "strategies": of_stage(by_job, made_of),
    "standing": of_stage(standing, made_of),
    "pays": of_stage(by_kind),
    "rivals": of_stage(counts, made_of),
    "instead": of_stage(instead),
    "adds": of_stage(added),
    "parts": of_stage(of_parts, made_of),
    "measures": of_stage(measured),
    "streams": lambda folder: table_of(ROOT / folder).to_markdown(),
    "foretells": foretells,
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


def draw_paper(path: Path) -> None:
    """Draw the README's figure 7: error against cost, of the paper's strategies and its rival."""
    order = committed(ROOT / "records/papers/saturated")
    scale = replace(order.scale, arms=("traditional", "sb", "stale", "third"))
    found = gather(PAPERS["fig-7"], replace(order, scale=scale), {})
    drawn = PAPERS["fig-7"].draw(replace(found, panels=found.panels[:2]))
    assert drawn is not None
    drawn.supxlabel("")  # a page has its own words
    with matplotlib.rc_context(SETTINGS):
        drawn.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw_paper(ROOT / "docs" / "figure-7.svg")
    draw_gains(ROOT / "docs" / "gains.svg", foretold("records/study"))
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
