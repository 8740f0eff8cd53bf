"""Redo figures of the papers: list their runs, train the missing ones, draw, and write the page."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

import selective_backprop as sb
from reproductions import training
from reproductions.claims import Compared, Figure, Judged, compared, judge
from reproductions.diet_sb.figures import FIGURES as DIET_SB
from reproductions.drawing import caption, save
from reproductions.jiang2019.figures import FIGURES as JIANG2019
from reproductions.jiang2019.scales import SCALES
from reproductions.measures import Evidence, Panel
from reproductions.settings import Arm, Scale
from reproductions.training import StepTiming, read_step_times
from selective_backprop_lab.analysis.estimates import Verdict, tally
from selective_backprop_lab.analysis.facts import seeds_of
from selective_backprop_lab.analysis.queries import counted
from selective_backprop_lab.analysis.tables import Column, Table, escaped
from selective_backprop_lab.names import find_name
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.frame import frame_of
from selective_backprop_lab.records.schema import read_run, record_paths
from selective_backprop_lab.runner.progress import spell
from selective_backprop_lab.training.run_config import RunConfig

FIGURES: Mapping[str, Figure] = {figure.name: figure for figure in (*JIANG2019, *DIET_SB)}
RUNS = "runs"
COMMITTED = Path("records", "papers")
SEEDS = 3  # of each strategy, unless more are asked for or on record
_LISTED = 12  # strategies of the same seeds that are named if runs are left out; more are counted
_START = "<!-- sections -->"
_HEAD = Path(__file__).with_name("page.md").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class PaperOrder(training.Order):
    """An order at a scale."""

    scale: Scale
    records_in: Path | None = None  # folder of the records, if it is not one of `out`

    @property
    def folder(self) -> Path:
        return self.records_in or self.out / RUNS / self.scale.name

    def plans_of(self, arm: Arm) -> list[RunConfig]:
        """Return the runs of one arm: one for each seed that is asked for or on record."""
        asked = arm.seeds or self.scale.seeds[: self.seeds] or range(self.seeds)
        # Runs on record may lack what probes see.
        more = () if arm.seeds or arm.plan.probes else self._seeds
        seeds = dict.fromkeys((*asked, *more))
        runs = [replace(arm.plan, seed=seed, device=self.device) for seed in seeds]
        return [run for run in runs if run.seed in asked or run.record_name in self._recorded]

    def jobs_of(self, figures: Iterable[Figure]) -> list[training.Job]:
        """Return the runs and timings of figures, each once.

        Runs of one data set and seed are neighbours, so that a machine that changes its speed does
        so for all strategies. A run has the probes of all figures that share it, so that a figure
        that is drawn later does not repeat it.
        """
        wanted = {job.record_name for figure in figures for job in self._needs[figure.name]}
        jobs = [job for name, job in self._shared.items() if name in wanted]
        runs = [job for job in jobs if isinstance(job, RunConfig)]
        timings = [job for job in jobs if isinstance(job, StepTiming)]
        return [*sorted(runs, key=lambda run: (run.seed, run.recipe.data)), *timings]

    @cached_property
    def _recorded(self) -> frozenset[str]:
        paths = record_paths(self.folder) if self.folder.is_dir() else []
        return frozenset(path.name for path in paths)

    @cached_property
    def _seeds(self) -> tuple[int, ...]:
        names = (name.rpartition("-seed")[2].partition("-")[0] for name in self._recorded)
        return tuple(sorted({int(name) for name in names if name.isdecimal()}))

    @cached_property
    def first(self) -> Mapping[Compared, str]:
        """The first item that makes each comparison, by its name."""
        found: dict[Compared, str] = {}
        for figure in figures_at(self.scale):
            for one in compared(figure.claims, figure.panels(self.scale)):
                found.setdefault(one, figure.name)
        return found

    def judge(self, figure: Figure, evidence: Evidence) -> list[Judged]:
        """Judge the claims of a figure; a comparison that an earlier one makes is not counted."""
        others = {one: name for one, name in self.first.items() if name != figure.name}
        return [*judge(figure.claims, evidence, others)]

    @cached_property
    def records(self) -> Mapping[str, pd.DataFrame]:
        """The evaluations of each finished run on record, by the name of its record."""
        runs = (read_run(self.folder / name) for name in self._shared if name in self._recorded)
        return {str(name): own for name, own in counted(frame_of(runs)).groupby("run")}

    def has(self, job: training.Job) -> bool:
        if isinstance(job, StepTiming):
            return training.is_done(job, self.folder)
        run = self.records.get(job.record_name)
        seen = set() if run is None else {each.probe for each in run.observations.iloc[0]}
        return run is not None and seen.issuperset(repr(probe) for probe in job.probes)

    @cached_property
    def _needs(self) -> Mapping[str, list[training.Job]]:
        found: dict[str, list[training.Job]] = {}
        for figure in figures_at(self.scale):
            arms = [arm for panel in figure.panels(self.scale) for arm in panel.arms]
            timings = [replace(each, device=self.device) for each in figure.timings(self.scale)]
            found[figure.name] = [*(run for arm in arms for run in self.plans_of(arm)), *timings]
        return found

    @cached_property
    def _shared(self) -> Mapping[str, training.Job]:
        found: dict[str, training.Job] = {}
        for job in (job for jobs in self._needs.values() for job in jobs):
            there = found.setdefault(job.record_name, job)
            if isinstance(there, RunConfig) and isinstance(job, RunConfig):
                probes = tuple(dict.fromkeys((*there.probes, *job.probes)))
                found[job.record_name] = replace(there, probes=probes)
        return found


def committed(folder: Path) -> PaperOrder:
    scale = SCALES[folder.name]
    options: dict[str, Any] = {"threads": 1, "jobs": 1, "root": None, "command": ""}
    return PaperOrder(scale=scale, seeds=SEEDS, device="cpu", out=folder, trains=False, **options)


def figures_at(scale: Scale) -> list[Figure]:
    named = [FIGURES[name] for name in FIGURES if name in (scale.figures or FIGURES)]
    return [figure for figure in named if figure.needs(scale)]


def find_figures(names: Sequence[str], scale: Scale) -> list[Figure]:
    """Return the figures of some names, each once; `all` stands for all of the scale."""
    there = {figure.name: figure for figure in figures_at(scale)}
    for name in names:
        if name != "all" and name not in there:
            raise sb.ConfigurationError(
                f"{name} is not redone at scale {scale.name}, which has {', '.join(there)}; "
                "--scale full has everything"
            )
    return list(there.values()) if "all" in names else [there[n] for n in dict.fromkeys(names)]


def limited(
    scale: Scale, figures: Sequence[Figure], arms: Sequence[str], only: Sequence[str]
) -> tuple[Scale, list[Figure]]:
    """Return a scale with only some strategies and data, and the figures that need any of them."""
    panels = [panel for figure in figures for panel in figure.panels(scale)]
    strategies = dict.fromkeys(arm.strategy for panel in panels for arm in panel.arms)
    timed = [timing.recipe for figure in figures for timing in figure.timings(scale)]
    data = dict.fromkeys(each.data for each in [*(p.setting.recipe for p in panels), *timed])
    keys = tuple(find_name("strategy", arm, strategies, more=" here") for arm in arms)
    names = tuple(find_name("data set", name, data, more=" here") for name in only)
    part = replace(scale, arms=keys, only=names)
    if not (kept := [figure for figure in figures if figure.needs(part)]):
        raise sb.ConfigurationError(
            f"nothing of {', '.join(each.name for each in figures)} is left with only {part.part}"
        )
    return part, kept


def list_figures(console: Console, figures: Sequence[Figure], order: PaperOrder) -> None:
    every, folder = order.jobs_of(figures), order.folder
    absent = training.absent_data(every, order.root)
    done = {job.record_name: job for job in every if training.is_done(job, folder)}
    pace = training.pace_of(every, COMMITTED / order.scale.name / RUNS / order.scale.name)
    pace |= training.pace_of(done.values(), folder)

    def row(name: str, title: str, jobs: Sequence[training.Job]) -> tuple[str, ...]:
        waiting = [job for job in jobs if job.record_name not in done]
        time = spell(training.seconds_left(waiting, pace, order.jobs)) if waiting else "–"
        data = sorted({job.recipe.data for job in jobs})
        mark = "*" if absent.keys() & set(data) else ""
        count = f"{len(jobs) - len(waiting)} of {len(jobs)}"
        return name, count, time + mark, title, ", ".join(data)

    rows = [row(figure.name, figure.reported.title, order.jobs_of([figure])) for figure in figures]
    rows.append(row("all", "everything; shared runs count once", every))
    head = ("name", "runs done", "time\nleft", *(Column(n, left=True) for n in ("shows", "data")))
    seeds = f"{order.seeds} seed{'' if order.seeds == 1 else 's'}"
    title = f"{order.scale.name} scale, {seeds}, {order.jobs} at a time"
    notes = ["*: some of its data are missing."] if absent else []
    console.print(Table(head, rows, title, notes, ruled=(len(figures),)))
    for name, why in absent.items():
        console.print(f"{name} is missing: {why}", soft_wrap=True)


def reproduce(console: Console, figures: Sequence[Figure], order: PaperOrder) -> None:
    every, absent = order.jobs_of(figures), {}
    if order.trains:
        absent = training.absent_data(every, order.root)
        for figure in figures:
            names = {job.recipe.data for job in order.jobs_of([figure])}
            if names <= absent.keys():
                raise sb.DataError(f"{figure.name}: {absent[min(names)]}")
        training.train_missing(console, every, order, order.folder, absent)
    order = replace(order)  # its records are read now, once for all figures
    if not any(map(order.has, every)):
        raise sb.RecordError(
            f"no run of these is on record in {order.folder}, and --from-records trains none"
        )
    drawn = dict[str, str]()
    for figure in figures:
        try:
            if text := _drawn(console, figure, order, absent):
                drawn[figure.name] = text
        except sb.DataError as error:  # it shows examples of a data set
            console.print(f"{figure.name}: left as it is. {error}", soft_wrap=True)
    page = write_index(order.out, list(FIGURES), drawn)
    console.print(f"Open {page}; figures lie beside it as PNG and SVG.", soft_wrap=True)


def _drawn(console: Console, figure: Figure, order: PaperOrder, absent: Mapping[str, str]) -> str:
    """Write the files of a figure, and return its section; "" if its runs are not on record."""
    evidence = gather(figure, order, absent)
    name = f"{figure.name}, {figure.reported.title.lower()}"
    lacks = len(figure.panels(order.scale)) - len(evidence.panels)
    if (figure.whole and lacks) or not (evidence.panels or evidence.timings):
        console.print(f"{name}: {'not all' if evidence.panels else 'nothing'} is on record")
        return ""
    tables, judged = figure.tables(evidence), order.judge(figure, evidence)
    drawing = figure.draw(evidence)
    written = section(figure, evidence, tables, judged, drawn=drawing is not None)
    with replacing(order.out / f"{figure.name}.md") as file:
        file.write(written.encode())
    console.print(f"{name}: {tally(finding for _, finding in judged) or 'no claim'}")
    for kind in ("png", "svg"):
        (order.out / f"{figure.name}.{kind}").unlink(missing_ok=True)
    if drawing is not None:
        save(drawing, order.out / figure.name)
    else:
        console.print(*tables)
    return written


def gather(figure: Figure, order: PaperOrder, absent: Mapping[str, str]) -> Evidence:
    """Return a figure's records, without panels of `absent` data sets, but with the reasons."""
    needed = order.jobs_of([figure])
    jobs = [job for job in needed if job.recipe.data not in absent]
    there = {job.record_name for job in jobs if order.has(job)}

    def lacking(panel: Panel) -> str:
        found: dict[str, list[str]] = {}
        for arm in panel.arms:
            plans = [plan for plan in order.plans_of(arm) if plan.record_name not in there]
            if plans:
                seeds = seeds_of([plan.seed for plan in plans])
                words = f"(seed{'s' if len(plans) > 1 else ''} {seeds})"
                found.setdefault(words, []).append(arm.label)
        return "; ".join(
            f"{'; '.join(arms) if len(arms) <= _LISTED else f'{len(arms)} strategies'} {words}"
            for words, arms in found.items()
        )

    def filled(panel: Panel) -> Panel:
        keyed = [(arm.key, plan.record_name) for arm in panel.arms for plan in order.plans_of(arm)]
        every = [order.records[name].assign(key=key) for key, name in keyed if name in there]
        # The copy has few blocks, so its rows are taken faster.
        runs = pd.concat(every, ignore_index=True).copy() if every else panel.runs
        found, arms, lost = replace(panel, runs=runs, root=order.root), list[Arm](), list[Arm]()
        for arm in panel.arms:
            shut = found.gate_shut(arm.key)
            arm = replace(arm, label=f"{arm.label} ({shut})") if shut else arm
            (arms if arm.key in found else lost).append(arm)
        return replace(found, arms=tuple(arms), absent=tuple(lost))

    planned = [p for p in figure.panels(order.scale) if p.setting.recipe.data not in absent]
    names = {job.recipe.data for job in needed}
    lost = [name for name in absent if name in names]
    missing = [f"Left out, since {name} is not at hand: {absent[name]}" for name in lost]
    if order.scale.part:
        missing.append(f"Asked for was only {order.scale.part}.")
    if len(there) < len(jobs):
        missing.append(f"Left out: {len(jobs) - len(there)} of {len(jobs)} runs, not on record.")
        missing += [f"{panel.title}: {arms}." for panel in planned if (arms := lacking(panel))]
    timed = [job for job in jobs if isinstance(job, StepTiming) and job.record_name in there]
    timings = tuple(read_step_times(order.folder / job.record_name) for job in timed)
    panels = tuple(panel for panel in map(filled, planned) if panel.arms)
    return Evidence(order.scale, panels, timings, figure.reported.words, tuple(missing))


def section(
    figure: Figure, evidence: Evidence, tables: Sequence[Table], judged: list[Judged], drawn: bool
) -> str:
    said, scale = figure.reported, evidence.scale
    source = f"Source: {said.source.title}, {said.place}. Scale: {scale.name}."
    lines = [f"## {figure.name}: {said.title}", "", source, ""]
    lines += [f"Measured: {figure.form(scale)}.", ""]
    changes = {} if said.ours else figure.changes(scale)
    lines += [f"- {escaped(title)}: {', '.join(each.values())}" for title, each in changes.items()]
    lines += [""] if changes else []
    if said.quotes:
        lines += ["Reported:", ""]
    for name, quote in said.quotes.items():
        other = "" if quote.source is said.source else f"{quote.source.title}, "
        lines.append(f"- *{name}* ({other}{quote.section}): “{escaped(quote.text)}”")
    lines += ["", *(f"{note}\n" for note in said.notes)] if said.quotes else []
    if drawn:
        lines += [f"![{said.title}]({figure.name}.png)", ""]
    for table in tables:
        lines += [table.to_markdown(), ""]
    verdicts = tally(finding for _, finding in judged)
    lines += [f"Verdict: {verdicts or 'no claim'}.", ""]
    if judged:
        rows = [
            (f"*{quote}*", each.claim, f"**{each.aside or each.verdict}**", each.measured)
            for quote, each in judged
        ]
        head = (Column(name, left=True) for name in ("of", "claim", "verdict", "measured"))
        lines += [Table(tuple(head), rows).to_markdown(), ""]
    return "\n".join([*lines, escaped(caption(evidence)), ""])


def write_index(folder: Path, order: Collection[str], drawn: Mapping[str, str]) -> Path:
    """Write the page: the sections that were just written, and its old ones of other figures."""
    page = folder / "index.md"
    rest = page.read_text(encoding="utf-8").partition(_START)[2] if page.exists() else ""
    old = re.split(r"^## ([^:\n]+):", rest, flags=re.MULTILINE)[1:]
    both = zip(old[::2], old[1::2], strict=True)
    sections = {name: f"## {name}:{text.rstrip()}\n" for name, text in both}
    sections |= drawn
    there = [name for name in order if name in sections]
    rows = [_overview(name, sections[name]) for name in there]
    columns = ("shows", "measured", "verdict", "the first claim that the records decide")
    head = ("item", *(Column(name, left=True) for name in columns))
    found = re.findall(r"([a-z ]+?) (\d+)", ", ".join(row[3] for row in rows))
    counts = {word: sum(int(n) for name, n in found if name.strip() == word) for word in Verdict}
    said = ", ".join(f"{word} {count}" for word, count in counts.items() if count)
    overview = Table(head, [*rows, ("all", "", "", said, "")]).to_markdown()
    text = "\n".join(sections[name] for name in there)
    with replacing(page) as file:
        file.write(f"{_HEAD}{_START}\n\n{overview}\n{text}".encode())
    return page


def _overview(name: str, section: str) -> tuple[str, ...]:
    parts = [f"## {name}: (.+)", r"Measured: (.+)\.", r"Verdict: (.+)\."]
    found = [re.search(f"^{part}$", section, re.MULTILINE) for part in parts]
    decided = f"{Verdict.HOLDS}|{Verdict.FAILS}"
    row = rf"^\| \*.+?\* \| (.+) \| \*\*({decided})\*\* \| (.+) \|$"
    first = re.search(row, section, re.MULTILINE)
    words = f"{first[1]}: **{first[2]}**, {first[3]}" if first else ""
    return name, *(each[1] if each else "" for each in found), words
