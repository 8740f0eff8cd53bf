"""The command `study`: train what is missing of a stage, then judge it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from rich.console import Console

import selective_backprop as sb
from reproductions.auto_study.page import Section, compose, tally, write_page
from reproductions.auto_study.protocol import OURS, Ground, Stage
from reproductions.jiang2019.meeting import meet_all
from reproductions.jiang2019.needs import Errand, Trained, missing_data
from reproductions.jiang2019.pace import Pace
from reproductions.jiang2019.progress import Shown, spell
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.data.folders import make_folder
from selective_backprop.lab.records.schema import read_run, read_runs
from selective_backprop.lab.runner.run_store import RunStore as Place

RUNS = "runs"


@dataclass(frozen=True, kw_only=True)
class Inquiry(Errand):
    """What the command was told.

    Attributes:
        stage: what to run; the others are those of every errand.
    """

    stage: Stage


def run_study(console: Console, inquiry: Inquiry) -> None:
    """Train what is missing, then write the stage's page.

    Raises:
        DataError: if data of the stage are missing.
        RecordError: if a record cannot be read or written, or nothing is there to draw.
    """
    needs = _needs(inquiry.stage, inquiry.seeds, inquiry.device)
    if inquiry.trains:
        _train(console, _by_seed(needs.values()), inquiry)
    page = compose(inquiry.stage, _sections(needs, inquiry.out / RUNS))
    if not page.shown:
        raise sb.RecordError(
            f"{inquiry.out / RUNS} has no ground on which {BASELINE} and {OURS} were run at each "
            "budget"
        )
    write_page(page, inquiry.out)
    for title, found in page.goals.items():
        console.print(f"{title}: {tally(found)}", soft_wrap=True)
    console.print(f"Open {inquiry.out / 'index.md'}; figures lie beside it.", soft_wrap=True)


def read_sections(stage: Stage, folder: Path) -> list[Section]:
    """Return each ground of a stage with what a folder has on record of it.

    Raises:
        RecordError: if nothing is on record, or cannot be read.
    """
    headers = [run.header for run in read_runs(folder / RUNS)]
    seeds = 1 + max(header.seed for header in headers) - stage.first_seed
    config, threads = headers[0].config, torch.get_num_threads()
    torch.set_num_threads(config["threads"])  # by which runs are told apart
    try:
        return _sections(_needs(stage, seeds, config["device"]), folder / RUNS)
    finally:
        torch.set_num_threads(threads)


def _sections(grounds: Mapping[Ground, Sequence[Trained]], folder: Path) -> list[Section]:
    sections = []
    for ground, needs in grounds.items():
        runs = tuple(read_run(need.file(folder)) for need in needs if need.is_met(folder))
        sections.append(Section(ground, runs, len(needs) - len(runs)))
    return sections


def _needs(stage: Stage, seeds: int, device: str) -> dict[Ground, list[Trained]]:
    return {
        ground: [Trained(plan) for plan in stage.plans_on(ground, seeds, device)]
        for ground in stage.grounds
    }


def _train(console: Console, needs: Sequence[Trained], inquiry: Inquiry) -> None:
    absent = missing_data(needs, inquiry.root)
    if absent:
        raise sb.DataError("\n".join(absent.values()))
    folder = inquiry.out / RUNS
    make_folder(folder)
    met = [need for need in needs if need.is_met(folder)]
    waiting = [need for need in needs if need not in met]
    time = spell(Pace(met, folder).total(waiting, jobs=inquiry.jobs)) if waiting else ""
    left = f", {len(waiting)} to do, about {time}" if waiting else ""
    console.print(f"{len(needs)} runs: {len(met)} on record{left}", soft_wrap=True)
    if waiting:
        place = Place(folder, inquiry.root, inquiry.command, inquiry.every)
        with Shown(console, waiting) as shown:
            meet_all(waiting, place, jobs=inquiry.jobs, threads=inquiry.threads, watch=shown)


def _by_seed(grounds: Iterable[Sequence[Trained]]) -> list[Trained]:
    """Return all runs, a seed of each ground after the other, so that few seeds say something."""
    return sorted(chain.from_iterable(grounds), key=lambda need: need.plan.seed)
