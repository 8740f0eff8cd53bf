"""Redo figures of the papers: say what they need, train what is missing, draw what can be drawn."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as ScreenTable
from rich.text import Text

import selective_backprop as sb
from reproductions.diet_sb.figures import FIGURES as DIET_SB
from reproductions.figures import Entry, Figure, Found, PanelData, Scale
from reproductions.jiang2019.figures import FIGURES as JIANG2019
from reproductions.jiang2019.scales import SCALES, ScaleName
from reproductions.page import write_figure, write_index
from reproductions.timing import StepTiming, read_step_times
from reproductions.training import (
    Job,
    Order,
    absent_data,
    data_of,
    file_of,
    is_done,
    pace_of,
    time_left,
    train_missing,
)
from selective_backprop.lab.analysis.verdict import tally
from selective_backprop.lab.records.schema import read_run, read_runs
from selective_backprop.lab.runner.progress import spell
from selective_backprop.lab.training.run_config import RunConfig

FIGURES: Mapping[str, Figure] = {figure.name: figure for figure in (*JIANG2019, *DIET_SB)}
RUNS = "runs"


@dataclass(frozen=True, kw_only=True)
class PaperOrder(Order):
    """What the command was told, and at which scale."""

    scale: Scale

    @property
    def folder(self) -> Path:
        """Of the records."""
        return self.out / RUNS / self.scale.name

    def jobs_of(self, figures: Iterable[Figure]) -> list[Job]:
        """Return what figures need, each thing once."""
        return self._needs.of(figures)

    @cached_property
    def _needs(self) -> "Needs":
        # Of all that the scale has: planned once, and with the probes of what is drawn later.
        return Needs(figures_at(self.scale), self.scale, seeds=self.seeds, device=self.device)


class Needs:
    """What figures need, each thing once, in an order that suits comparison.

    Runs of one data set and seed lie beside each other, so that a machine which changes its speed
    does so for all strategies. A run that several figures share has the probes of them all, so
    that it need not be repeated for one that is drawn later.
    """

    def __init__(self, figures: Iterable[Figure], scale: Scale, *, seeds: int, device: str) -> None:
        self._jobs: dict[Path, Job] = {}
        self._files: dict[str, set[Path]] = {}
        for figure in figures:
            entries = [entry for panel in figure.panels(scale) for entry in panel.entries]
            jobs: list[Job] = [plan for each in entries for plan in plans_of(each, seeds, device)]
            jobs += timings_of(figure, scale, device)
            self._files[figure.name] = {self._enter(job) for job in jobs}

    def of(self, figures: Iterable[Figure]) -> list[Job]:
        """Return what some of the figures need."""
        wanted = {file for figure in figures for file in self._files[figure.name]}
        return sorted((self._jobs[file] for file in self._jobs if file in wanted), key=_turn)

    def _enter(self, job: Job) -> Path:
        """Add a job, or its probes to the run that is there already, and return its file."""
        file = file_of(job)
        there = self._jobs.setdefault(file, job)
        if isinstance(there, RunConfig) and isinstance(job, RunConfig):
            probes = tuple(dict.fromkeys((*there.probes, *job.probes)))
            self._jobs[file] = replace(there, probes=probes)
        return file


def committed(folder: Path) -> PaperOrder:
    """Return the order of the records of a folder that bears its scale's name, all of a CPU."""
    scale = SCALES[ScaleName(folder.name)]
    seeds = 1 + max(run.header.seed for run in read_runs(folder / RUNS / scale.name))
    told: dict[str, Any] = {"threads": 1, "jobs": 1, "root": None, "command": "", "trains": False}
    return PaperOrder(scale=scale, seeds=seeds, device="cpu", out=folder, **told)


def plans_of(entry: Entry, seeds: int, device: str) -> list[RunConfig]:
    """Return the runs of one entry, a seed each."""
    return [replace(entry.plan, seed=seed, device=device) for seed in range(seeds)]


def timings_of(figure: Figure, scale: Scale, device: str) -> list[StepTiming]:
    """Return the timings of one figure."""
    return [replace(timing, device=device) for timing in figure.timings(scale)]


def _turn(job: Job) -> tuple[bool, int, str]:
    return (True, 0, "") if isinstance(job, StepTiming) else (False, job.seed, data_of(job))


def figures_at(scale: Scale) -> list[Figure]:
    """Return what can be redone at a scale."""
    return [
        each for each in FIGURES.values() if scale.figures is None or each.name in scale.figures
    ]


def find_figures(names: Sequence[str], scale: Scale) -> list[Figure]:
    """Return the figures of some names, each once; `all` stands for all that a scale has.

    Raises:
        ConfigurationError: if there is no such figure, or the scale does not have it.
    """
    there = {figure.name: figure for figure in figures_at(scale)}
    for name in names:
        if name != "all" and name not in FIGURES:
            raise sb.ConfigurationError(
                f"there is no figure or table {name!r}; there are {', '.join(FIGURES)}, and all"
            )
        if name != "all" and name not in there:
            raise sb.ConfigurationError(
                f"{name} is not redone at scale {scale.name}, which has {', '.join(there)}; "
                "--scale small and --scale full have everything"
            )
    return list(there.values()) if "all" in names else [there[n] for n in dict.fromkeys(names)]


def list_figures(console: Console, figures: Sequence[Figure], order: PaperOrder) -> None:
    """Print what each figure needs, what of it is on record, and how long the rest takes."""
    every, folder = order.jobs_of(figures), order.folder
    absent = absent_data(every, order.root)
    done = {file_of(job) for job in every if is_done(job, folder)}
    pace = pace_of((job for job in every if file_of(job) in done), folder)
    seeds = f"{order.seeds} seed{'' if order.seeds == 1 else 's'}"
    table = ScreenTable(
        title=Text(f"{order.scale.name} scale, {seeds}, {order.jobs} at a time"),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in ("name", "shows", "needs", "done", "missing", "time left", "data"):
        table.add_column(name, justify="left" if name in {"name", "shows", "data"} else "right")

    def add(name: str, title: str, jobs: Sequence[Job]) -> None:
        waiting = [job for job in jobs if file_of(job) not in done]
        time = spell(time_left(waiting, pace, order.jobs)) if waiting else "–"
        data = sorted(set(map(data_of, jobs)))
        lacking = [f"{name} missing" for name in data if name in absent]
        counts = (len(jobs), len(jobs) - len(waiting), len(waiting))
        table.add_row(name, title, *map(str, counts), time, ", ".join(lacking or data))

    for figure in figures:
        add(figure.name, figure.title, order.jobs_of([figure]))
    table.add_section()
    add("all", "everything, shared runs once", every)
    console.print(table)
    for name, why in absent.items():
        console.print(f"{name} is not at hand: {why}", soft_wrap=True)


def reproduce(console: Console, figures: Sequence[Figure], order: PaperOrder) -> None:
    """Train what is missing, then draw every figure and the page that collects them.

    Raises:
        DataError: if the data of a figure are missing altogether.
        RecordError: if a record cannot be read or written, or nothing is there to draw.
    """
    every, absent = order.jobs_of(figures), {}
    if order.trains:
        absent = absent_data(every, order.root)
        for figure in figures:
            names = set(map(data_of, order.jobs_of([figure])))
            if names <= absent.keys():
                raise sb.DataError(f"{figure.name}: {absent[min(names)]}")
        train_missing(console, every, order, order.folder, absent)
    elif not any(is_done(job, order.folder) for job in every):
        raise sb.RecordError(f"nothing of that is on record in {order.folder}, and --no-train")
    drawn = []
    for figure in figures:
        found = gather(figure, order, absent)
        what = f"{figure.name}, {figure.title.lower()}"
        if not found.panels and not found.timings:
            console.print(f"{what}: nothing is on record")
            continue
        shown = write_figure(figure, found, order.out)
        drawn.append(figure.name)
        console.print(f"{what}: {tally(shown.findings) or 'no claim'}")
        if shown.figure is None:
            for table in shown.tables:
                console.print(table.to_text(), soft_wrap=True)
    page = write_index(order.out, list(FIGURES), drawn)
    console.print(f"Open {page}; figures lie beside it as PNG and SVG.", soft_wrap=True)


def gather(figure: Figure, order: PaperOrder, absent: Mapping[str, str]) -> Found:
    """Read a figure's records.

    Args:
        figure: what to draw.
        order: where the records are.
        absent: data sets that are not at hand, with why; panels of theirs are left out.
    """
    folder, scale = order.folder, order.scale
    jobs = [job for job in order.jobs_of([figure]) if data_of(job) not in absent]
    there = {file_of(job, folder) for job in jobs if order.trains or is_done(job, folder)}

    def files(entry: Entry) -> list[Path]:
        plans = plans_of(entry, order.seeds, order.device)
        return [file for plan in plans if (file := file_of(plan, folder)) in there]

    specs = figure.panels(scale)
    panels = [
        PanelData(spec, tuple(entry.arm(map(read_run, files(entry))) for entry in spec.entries))
        for spec in specs
        if spec.setting.recipe.data not in absent
    ]
    times = [timing.file(folder) for timing in timings_of(figure, scale, order.device)]
    needed = {spec.setting.recipe.data for spec in specs}
    missing = [
        f"Left out, since {name} is not at hand: {why}"
        for name, why in absent.items()
        if name in needed
    ]
    if len(there) < len(jobs):
        missing.append(f"Left out: {len(jobs) - len(there)} of {len(jobs)} runs, not on record.")
    return Found(
        scale,
        panels=tuple(data for data in panels if data.pairs),
        timings=tuple(read_step_times(file) for file in times if file in there),
        missing=tuple(missing),
        root=order.root,
    )
