"""Redo a stage of the study: train what is missing, then judge it."""

from pathlib import Path

from rich.console import Console

import selective_backprop as sb
from reproductions.auto_study.page import Section, compose, draw_page
from reproductions.auto_study.protocol import OURS, Benchmark, Stage
from reproductions.training import Order, absent_data, file_of, is_done, train_missing
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.analysis.verdict import GOALS, tally
from selective_backprop.lab.records.schema import read_run, read_runs
from selective_backprop.lab.training.run_config import RunConfig

RUNS = "runs"


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
