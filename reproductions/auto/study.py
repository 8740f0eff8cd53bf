"""A stage of the study: train what is missing, and write the page of its gains and losses."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import pandas as pd
from rich.console import Console

import selective_backprop as sb
from reproductions.auto import protocol
from reproductions.auto.protocol import MEASURES, NULL, OURS, THINNED, THINNINGS, Stage, Workload
from reproductions.auto.results import (
    RUNS,
    VERDICTS,
    Gain,
    Judged,
    Results,
    find_rates,
    judged,
    read_finished,
    read_results,
)
from reproductions.training import Names, Order, absent_data, train_missing
from selective_backprop_lab.analysis.estimates import holm
from selective_backprop_lab.analysis.facts import listed, seeds_of
from selective_backprop_lab.analysis.queries import BASELINE
from selective_backprop_lab.analysis.tables import Table, escaped, with_interval
from selective_backprop_lab.names import find_name
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.strategies import TREATMENTS
from selective_backprop_lab.training.run_config import RunConfig


def run_study(
    console: Console, stage: Stage, order: Order, *, only: Names = (), arms: Names = ()
) -> None:
    """Train the missing runs of a stage, or of part of it, then write the page of all its records.

    `only` names the workloads to train, and `arms` the strategies; () stands for all.
    """
    there = {workload.name: workload for workload in stage.workloads}
    names = [find_name("workload", name, there, more=" in this stage") for name in only] or there
    asked = {find_name("strategy", arm, stage.arms, more=" in the study") for arm in arms}
    if order.trains:
        part = replace(stage, workloads=tuple(there[name] for name in dict.fromkeys(names)))
        _train(console, part, order, [arm for arm in stage.arms if arm in (asked or stage.arms)])
    seeds = order.seeds if order.trains else None  # None: all on record
    results = read_results(stage, order.out, seeds, order.device)
    shown = [each for each in results if len(each.runs)]
    if not shown:
        raise sb.RecordError(f"{order.out / RUNS} has no finished run of the stage {stage.title}")
    page = order.out / "index.md"
    text = f"# {stage.title}\n\n{HOW}\n\n{compose(results)}"
    if any(each.workload.adds for each in shown):
        text += f"\n{adds_up(shown).to_markdown()}"
    with replacing(page) as file:
        file.write(text.encode())
    console.print(counts(shown))
    console.print(f"Open {page}", soft_wrap=True)


def _train(console: Console, stage: Stage, order: Order, arms: Sequence[str]) -> None:
    tuning: list[RunConfig] | None = None
    while True:
        there = read_finished(order.out)
        # Rates beyond the edge of a grid are tried until the best is not at the edge.
        found = [find_rates(each, there, order.device, arms) for each in stage.workloads]
        if (wanted := [plan for plans, *_ in found for plan in plans]) == tuning:
            break
        tuning = wanted
        if absent := absent_data(tuning, order.root):
            raise sb.DataError("\n".join(absent.values()))
        _train_some(console, "Runs that find learning rates", tuning, order)
    plans, seeds = list[RunConfig](), stage.seeds(order.seeds)
    for workload, (*_, rates) in zip(stage.workloads, found, strict=True):
        plans += workload.plans(arms, rates, seeds, order.device)
    # A seed of each workload after the other, so that few seeds say something.
    _train_some(console, "Runs at the best rates", sorted(plans, key=lambda p: p.seed), order)


def _train_some(console: Console, what: str, plans: Sequence[RunConfig], order: Order) -> None:
    console.print(f"{what}: ", end="")
    try:
        train_missing(console, plans, order, order.out / RUNS)
    except sb.LossError as error:  # the others are done, and a rate at which a run diverges is out
        console.print(f"Diverged, and left out:\n{error}", soft_wrap=True)


HOW = Path(__file__).with_name("page.md").read_text(encoding="utf-8").rstrip()
HEAD = ("jobs", "gains", "level", "loses", "change in points: median, from, to")
HEAD += ("at equal CPU time: gains, level, loses", "change")
"""The columns of strategies and kinds of data, at equal cost and at equal CPU time."""
POINTS = "%"  # the unit of an error


def compose(results: Sequence[Results]) -> str:
    shown = [each for each in results if len(each.runs)]
    absent = [each.workload.title for each in results if not len(each.runs)]
    parts = [f"Not on record yet: {'; '.join(absent)}."] if absent else []
    if shown:
        tables = by_job(shown), added(shown), of_parts(shown), measured(shown)
        tables = *tables, measured(shown, THINNED)
        parts += [table.to_markdown().rstrip() for table in tables if table.rows]
        parts.append(made_of(shown))
    return "\n\n".join(parts) + "\n"


def by_job(results: Sequence[Results]) -> Table:
    """Return each job's best plain training and gains, below counts; empty columns are left out."""
    found = {arm: {job.title: job for job in judged(results, arm)} for arm in _arms(results)}
    made = [(each, each.workload.composition) for each in results]
    skewed = [each for each, data in made if data.skew or data.frequent]
    come = {job.title: job for job in judged(skewed, gain=Results.gain_as_classes_come)}
    rows = list[tuple[str, ...]]()
    for title, each, length in _jobs(results):
        rival, unit = each.rivals[length], each.workload.unit
        best = f"{with_interval(each.error(BASELINE, rival))} ({rival:g})"
        own = found.get(OURS, {}).get(title)
        more = (_in_bold(come.get(title), ""), "" if own is None else _passes(own))
        cells = (_in_bold(jobs.get(title)) for jobs in found.values())
        rows.append((title if unit == POINTS else f"{title}, {unit}", best, *cells, *more))
    head = ("job, at a cost in passes", f"best {BASELINE} (after passes)", *map(_short, found))
    head += (f"{OURS}, as classes come", "passes")
    if rows:
        sums = (", ".join(_counted([*jobs.values()])[1:]) for jobs in found.values())
        rows.insert(0, ("jobs: gains, level, loses", "", *sums, "", ""))
    columns = [column for column in zip(head, *rows, strict=True) if any(column[1:])]
    head, *rows = zip(*columns, strict=True) if columns else [head]
    title = f"Final error of the best {BASELINE} training, and gains (bold: more than chance)"
    return Table(head, rows, title)


def by_kind(results: Sequence[Results]) -> Table:
    """Return how often `auto` gains, is level and loses, by kind of data; most gains first."""
    there = {job.results.workload for job in judged(results)}
    kinds = {kind: {w for w in there if w.kind == kind} for kind in sorted(w.kind for w in there)}
    rows = [(kind, *_tallied(results, among=own)) for kind, own in kinds.items()]
    rows.sort(key=lambda row: -int(row[2]) / int(row[1]))
    rows.append(("all", *_tallied(results)))
    new = {w for w in there if w.recipe.data.partition(":")[0] not in protocol.FAMILIAR}
    if 0 < len(new) < len(there):
        name = f"of these, on data not used to develop {OURS}"
        rows.append((name, *_tallied(results, among=new)))
    if judged(results, NULL):
        name = f"all, {BASELINE} with other seeds: what chance does"
        rows.append((name, *_tallied(results, NULL)))
    return Table(("data", *HEAD), rows, f"What {OURS} gains by kind of data")


def counts(results: Sequence[Results]) -> Table:
    rows = [(_short(arm), *_tallied(results, arm)) for arm in _arms(results)]
    return Table(("strategy", *HEAD), rows, "Jobs in which each strategy gains, is level and loses")


def measured(results: Sequence[Results], arm: str = OURS) -> Table:
    """Return by how much a strategy changes each measure where one class is much larger."""
    unequal = [each for each in results if each.workload.unequal]
    ways: dict[str, Gain] = {"error": Results.gain, "error, in % of plain's": Results.change}
    ways |= {"error, at equal CPU time": Results.gain_in_time}
    ways |= {name: partial(Results.gain_by, measure=name) for name in MEASURES}
    found = [{job.title: job for job in judged(unequal, arm, way)} for way in ways.values()]
    rows = [(title, *(_in_bold(jobs.get(title)) for jobs in found)) for title, *_ in _jobs(unequal)]
    rows = [row for row in rows if {*row[1:]} != {"–"}]
    head = ("job, at a cost in passes", *ways)
    return Table(head, rows, f"What {arm} changes, by other measures")


def added(results: Sequence[Results]) -> Table:
    """Return in how many jobs `auto` ends lower with a rival than that rival alone."""
    rows = []
    for treatment in TREATMENTS:
        beyond = partial(Results.added, other=f"{BASELINE}+{treatment}")
        if found := judged(results, f"{OURS}+{treatment}", beyond):
            rows.append((treatment, *_counted(found)))
    head = ("treatment", "jobs", "lower", "level", "higher")
    return Table(head, rows, f"{OURS} with a treatment, against the treatment alone at equal cost")


def of_parts(results: Sequence[Results]) -> Table:
    """Return by how much each of `PARTS` ends above `auto`, at equal cost."""
    jobs, rows = _jobs(results), []
    for arm in protocol.PARTS:
        found = [each.added(arm, length, other=OURS) for _, each, length in jobs]
        if any(each.seeds for each in found):
            marks = ("**" if side in ("lower", "higher") else "" for side in holm(found))
            cells = (with_interval(each, signed=True) for each in found)
            own = (f"{mark}{cell}{mark}" for mark, cell in zip(marks, cells, strict=True))
            rows.append((arm.partition(":")[2].replace("_", " "), *own))
    head = (f"{OURS}, but", *(title for title, *_ in jobs))
    return Table(head, rows, f"The error above that of {OURS} (bold: more than chance)")


def adds_up(results: Sequence[Results]) -> Table:
    """Return all gains where `ADDED` is tried, with the seeds that a job's strategies share."""
    chosen = [each.on_shared_seeds() for each in results if each.workload.adds]
    titles, rows = [title for title, *_ in _jobs(chosen)], []
    for arm in dict.fromkeys((*protocol.INSTEAD, *protocol.ADDED)):
        jobs = {job.title: job for job in judged(chosen, arm)}
        cells = [_in_bold(jobs.get(title)) for title in titles]
        if arm not in (BASELINE, "random-backprop") and {*cells} != {"–"}:
            rows.append((arm, *cells))
    return Table(("gain of", *titles), rows, "What adds up, in bold where it gains or loses")


def made_of(results: Sequence[Results]) -> str:
    tuning, ran = pd.concat([r.tuning for r in results]), pd.concat([r.runs for r in results])
    runs = pd.concat([tuning, ran])
    missing = sum(each.missing for each in results)
    return escaped(
        f"{len(ran):,} runs with seeds {seeds_of(sorted({*ran.seed}))} are judged. {len(tuning):,} "
        f"others found the learning rates, and {missing:,} are missing or diverged. The runs took "
        f"{runs.cpu_seconds.sum() / 3600:.1f} CPU hours on {listed(dict.fromkeys(runs.machine))}; "
        f"code {listed(dict.fromkeys(runs.code))}."
    )


def _jobs(results: Sequence[Results]) -> list[tuple[str, Results, float]]:
    jobs = [(each, length) for each in results for length in each.rivals]
    return [(f"{each.workload.title} at {length:g}", each, length) for each, length in jobs]


def _in_bold(job: Judged | None, otherwise: str = "–") -> str:
    if job is None:
        return otherwise
    said = with_interval(job.gain, signed=True)
    return f"**{said}**" if job.verdict in {"gains", "loses"} else said


def _passes(job: Judged) -> str:
    if job.verdict != "gains":
        return ""
    found = job.results.passes(OURS, job.length)
    longest = job.results.workload.lengths[-1]
    return f"not within {longest:g}" if found is None else f"{found:.1f}"


def _arms(results: Sequence[Results]) -> list[str]:
    there = {arm for each in results for arm in each.runs.arm}
    shown = [arm for arm in protocol.ORDER if arm in there and arm != BASELINE]
    # Only the best share is shown.
    return [*dict.fromkeys(THINNED if arm in THINNINGS else arm for arm in shown)]


def _short(arm: str) -> str:
    return arm.rpartition(":")[2]  # of an import path


def _counted(jobs: Sequence[Judged]) -> tuple[str, ...]:
    found = Counter(job.verdict for job in jobs)
    return str(len(jobs)), *(str(found[verdict]) for verdict in VERDICTS.values())


def _tallied(
    results: Sequence[Results], arm: str = OURS, among: Collection[Workload] | None = None
) -> tuple[str, ...]:
    """Return a strategy's row under `HEAD`, judged in all jobs and counted `among` some."""
    cells = list[tuple[str, ...]]()
    for gain in (Results.gain, Results.gain_in_time):
        jobs = judged(results, arm, gain)
        jobs = [job for job in jobs if among is None or job.results.workload in among]
        means = [job.gain.mean for job in jobs if job.results.workload.unit == POINTS]
        ends = (median(means), min(means), max(means)) if means else ()
        change = ", ".join(f"{mean:+.2f}".replace("-", "−") for mean in ends) or "–"
        cells.append((*_counted(jobs), change))
    (*counted, change), (_, *in_time, then) = cells
    return *counted, change, ", ".join(in_time) if then != "–" else "–", then
