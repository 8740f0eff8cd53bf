"""Redo figures of the papers: say what they need, train what is missing, draw what can be drawn."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

import selective_backprop as sb
from reproductions import training
from reproductions.carrying import carried, take_back
from reproductions.claims import Compared, Judged, compared, judge
from reproductions.diet_sb.figures import FIGURES as DIET_SB
from reproductions.drawing import caption, save
from reproductions.evidence import Evidence, Panel
from reproductions.figures import Figure
from reproductions.jiang2019.figures import FIGURES as JIANG2019
from reproductions.jiang2019.figures import TUNING_SEEDS
from reproductions.jiang2019.scales import SCALES, ScaleName
from reproductions.settings import Arm, Scale
from reproductions.timing import StepTiming, read_step_times
from selective_backprop_lab.analysis.facts import seeds_of
from selective_backprop_lab.analysis.queries import counted
from selective_backprop_lab.analysis.tables import Column, Table, escaped
from selective_backprop_lab.analysis.verdict import CLAIMS, Verdict, tally
from selective_backprop_lab.names import find_name
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.frame import frame_of
from selective_backprop_lab.records.schema import read_run, read_runs
from selective_backprop_lab.runner.progress import spell
from selective_backprop_lab.training.run_config import RunConfig

FIGURES: Mapping[str, Figure] = {figure.name: figure for figure in (*JIANG2019, *DIET_SB)}
RUNS = "runs"
_LISTED = (
    12  # strategies of the same seeds that are named where runs are left out; more are counted
)
_START = "<!-- sections -->"
_HEAD = """# The papers, redone

These figures and tables of the source papers are drawn from the records in `runs`. A claim \
of a source *agrees* if the whole 95 % interval over seeds lies on the side that the source \
claims, and *disagrees* if it lies on the other side. If the interval covers both sides, the \
verdict is *cannot say*. A measurement without a sentence of the source is not judged.

Some claims are not counted. *By construction*: the claim cannot fail. *Not tested*: it is about \
a data set that was replaced by another. *Is Traditional here*: Kath18 never began to select, so \
it trained as Traditional does. *At tuned rates*: each strategy has its own learning rate, where \
the paper has one for all. *Counted above* or *at* another item: the same runs were compared \
there. Seconds are shown only for runs of the same day, machine and code that shared no GPU. \
Otherwise cost is shown.

Captions name the runs that are left out. To train those of an item, use `scripts/reproduce ITEM \
--scale SCALE --root FOLDER --out records/papers/SCALE`.

"""


@dataclass(frozen=True, kw_only=True)
class PaperOrder(training.Order):
    """What the command is to do, and at which scale."""

    scale: Scale
    pack: Path | None = None  # folder of the pieces that carry records to and from other machines

    @property
    def folder(self) -> Path:
        """Of the records."""
        return self.out / RUNS / self.scale.name

    def plans_of(self, arm: Arm) -> list[RunConfig]:
        """Return the runs of one arm, a seed each."""
        seeds = arm.seeds or self.scale.seeds[: self.seeds] or range(self.seeds)
        return [replace(arm.plan, seed=seed, device=self.device) for seed in seeds]

    def timings_of(self, figure: Figure) -> list[StepTiming]:
        """Return the timings of one figure."""
        return [replace(timing, device=self.device) for timing in figure.timings(self.scale)]

    def jobs_of(self, figures: Iterable[Figure]) -> list[training.Job]:
        """Return what figures need, each thing once.

        Runs of one data set and seed lie beside each other, so that a machine which changes its
        speed does so for all strategies. A run that several figures share has the probes of them
        all, so that it need not be repeated for one that is drawn later.
        """
        wanted = {training.file_of(job) for figure in figures for job in self._needs[figure.name]}
        return sorted((self._shared[file] for file in self._shared if file in wanted), key=_turn)

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
    def _needs(self) -> Mapping[str, list[training.Job]]:
        return {
            figure.name: [
                *(
                    plan
                    for panel in figure.panels(self.scale)
                    for arm in panel.arms
                    for plan in self.plans_of(arm)
                ),
                *self.timings_of(figure),
            ]
            for figure in figures_at(self.scale)
        }

    @cached_property
    def _shared(self) -> Mapping[Path, training.Job]:
        """Everything by its file, runs with the probes of all figures."""
        found: dict[Path, training.Job] = {}
        for job in (job for jobs in self._needs.values() for job in jobs):
            there = found.setdefault(training.file_of(job), job)
            if isinstance(there, RunConfig) and isinstance(job, RunConfig):
                probes = tuple(dict.fromkeys((*there.probes, *job.probes)))
                found[training.file_of(job)] = replace(there, probes=probes)
        return found


def committed(folder: Path) -> PaperOrder:
    """Return the order of the records of a folder that bears its scale's name, all of a CPU."""
    scale = SCALES[ScaleName(folder.name)]
    seeds = {run.header.seed for run in read_runs(folder / RUNS / scale.name)}
    options: dict[str, Any] = {"threads": 1, "jobs": 1, "root": None, "command": ""}
    count = 1 + max(seeds.difference(TUNING_SEEDS), default=0)
    return PaperOrder(scale=scale, seeds=count, device="cpu", out=folder, trains=False, **options)


def _turn(job: training.Job) -> tuple[bool, int, str]:
    return (
        (True, 0, "") if isinstance(job, StepTiming) else (False, job.seed, training.data_of(job))
    )


def figures_at(scale: Scale) -> list[Figure]:
    """Return what can be redone at a scale."""
    names = FIGURES if scale.figures is None else scale.figures
    return [figure for figure in FIGURES.values() if figure.name in names and figure.needs(scale)]


def find_figures(names: Sequence[str], scale: Scale) -> list[Figure]:
    """Return the figures of some names, each once; `all` stands for all that a scale has.

    Raises:
        ConfigurationError: if the scale does not have one of them.
    """
    there = {figure.name: figure for figure in figures_at(scale)}
    for name in names:
        if name != "all" and name not in there:
            raise sb.ConfigurationError(
                f"{name} is not redone at scale {scale.name}, which has {', '.join(there)}; "
                "--scale small and --scale full have everything"
            )
    return list(there.values()) if "all" in names else [there[n] for n in dict.fromkeys(names)]


def limited(
    scale: Scale, figures: Sequence[Figure], arms: Sequence[str], only: Sequence[str]
) -> tuple[Scale, list[Figure]]:
    """Return a scale with some strategies and data only, and the figures that need any of them.

    Raises:
        ConfigurationError: if no figure has one of the names, or none needs what is left.
    """
    panels = [panel for figure in figures for panel in figure.panels(scale)]
    strategies = dict.fromkeys(arm.strategy for panel in panels for arm in panel.arms)
    recipes = [panel.setting.recipe for panel in panels]
    recipes += [timing.recipe for figure in figures for timing in figure.timings(scale)]
    data = dict.fromkeys(recipe.data for recipe in recipes)
    part = replace(
        scale,
        arms=tuple(find_name("strategy", arm, strategies, more=" here") for arm in arms),
        only=tuple(find_name("data set", name, data, more=" here") for name in only),
    )
    if not (kept := [figure for figure in figures if figure.needs(part)]):
        raise sb.ConfigurationError(
            f"nothing of {', '.join(each.name for each in figures)} is left with only {part.part}"
        )
    return part, kept


def list_figures(console: Console, figures: Sequence[Figure], order: PaperOrder) -> None:
    """Print what each figure needs, what of it is on record, and how long the rest takes."""
    every, folder = order.jobs_of(figures), order.folder
    absent = training.absent_data(every, order.root)
    done = {training.file_of(job) for job in every if training.is_done(job, folder)}
    pace = training.pace_of([job for job in every if training.file_of(job) in done], folder)

    def row(name: str, title: str, jobs: Sequence[training.Job]) -> tuple[str, ...]:
        waiting = [job for job in jobs if training.file_of(job) not in done]
        time = spell(training.seconds_left(waiting, pace, order.jobs)) if waiting else "–"
        data = sorted(set(map(training.data_of, jobs)))
        mark = "*" if absent.keys() & set(data) else ""
        count = f"{len(jobs) - len(waiting)} of {len(jobs)}"
        return name, count, time + mark, title, ", ".join(data)

    rows = [row(figure.name, figure.title, order.jobs_of([figure])) for figure in figures]
    rows.append(row("all", "everything; shared runs count once", every))
    shows, data = Column("shows", left=True), Column("data", left=True, expendable=1)
    head = ("name", "runs done", "time\nleft", shows, data)
    seeds = f"{order.seeds} seed{'' if order.seeds == 1 else 's'}"
    title = f"{order.scale.name} scale, {seeds}, {order.jobs} at a time"
    notes = ["*: some of its data are missing."] if absent else []
    console.print(Table(head, rows, title, notes, ruled=(len(figures),)))
    for name, why in absent.items():
        console.print(f"{name} is missing: {why}", soft_wrap=True)


def reproduce(console: Console, figures: Sequence[Figure], order: PaperOrder) -> None:
    """Train what is missing, then draw every figure and the page that collects them.

    Raises:
        DataError: if the data of a figure are missing altogether.
        RecordError: if a record cannot be read or written, or nothing is there to draw.
    """
    every, absent = order.jobs_of(figures), {}
    if order.pack is not None and not order.trains:
        take_back(order.pack, order.folder, console)
    if order.trains:
        absent = training.absent_data(every, order.root)
        for figure in figures:
            names = set(map(training.data_of, order.jobs_of([figure])))
            if names <= absent.keys():
                raise sb.DataError(f"{figure.name}: {absent[min(names)]}")
        with carried(order.pack, order.folder, console):
            training.train_missing(console, every, order, order.folder, absent)
    elif not any(training.is_done(job, order.folder) for job in every):
        raise sb.RecordError(
            f"no run of these is on record in {order.folder}, and --from-records trains none"
        )
    drawn = {}
    for figure in figures:
        evidence = gather(figure, order, absent)
        name = f"{figure.name}, {figure.title.lower()}"
        lacks = len(figure.panels(order.scale)) - len(evidence.panels)
        if (figure.whole and lacks) or not (evidence.panels or evidence.timings):
            console.print(f"{name}: {'not all' if evidence.panels else 'nothing'} is on record")
            continue
        tables, judged = figure.tables(evidence), order.judge(figure, evidence)
        drawing = figure.draw(evidence)
        pictured = drawing is not None
        drawn[figure.name] = section(figure, evidence, tables, judged, pictured=pictured)
        text = "\n".join(table.to_text() for table in tables)
        for kind, content in (("txt", text), ("md", drawn[figure.name])):
            with replacing(order.out / f"{figure.name}.{kind}") as file:
                file.write(content.encode())
        console.print(f"{name}: {tally(finding for _, finding in judged) or 'no claim'}")
        for picture in (order.out / f"{figure.name}.{kind}" for kind in ("png", "svg")):
            picture.unlink(missing_ok=True)
        if drawing is not None:
            save(drawing, order.out / figure.name)
        else:
            console.print(text, soft_wrap=True)
    page = write_index(order.out, list(FIGURES), drawn)
    console.print(f"Open {page}; figures lie beside it as PNG and SVG.", soft_wrap=True)


def gather(figure: Figure, order: PaperOrder, absent: Mapping[str, str]) -> Evidence:
    """Read a figure's records; panels of data sets that are `absent` are left out, with why."""
    folder, needed = order.folder, order.jobs_of([figure])
    jobs = [job for job in needed if training.data_of(job) not in absent]
    there = {
        training.file_of(job, folder)
        for job in jobs
        if order.trains or training.is_done(job, folder)
    }

    def files(jobs: Iterable[training.Job]) -> list[Path]:
        return [file for job in jobs if (file := training.file_of(job, folder)) in there]

    def lacking(panel: Panel) -> str:
        """Return the arms of a panel with runs that are not there, and these runs' seeds."""
        found: dict[tuple[int, ...], list[str]] = {}
        for arm in panel.arms:
            seeds = tuple(plan.seed for plan in order.plans_of(arm) if not files([plan]))
            found.setdefault(seeds, []).append(arm.label)
        return "; ".join(
            f"{'; '.join(arms) if len(arms) <= _LISTED else f'{len(arms)} strategies'} "
            f"(seed{'s' if len(seeds) > 1 else ''} {seeds_of(seeds)})"
            for seeds, arms in found.items()
            if seeds
        )

    def filled(panel: Panel) -> Panel:
        """Return a panel with the evaluations of the arms that have finished runs."""
        frames = {
            arm.key: counted(frame_of(map(read_run, files(order.plans_of(arm)))))
            for arm in panel.arms
        }
        every = [each.assign(key=key) for key, each in frames.items() if len(each)]
        runs = pd.concat(every, ignore_index=True) if every else panel.runs
        found = replace(panel, runs=runs, root=order.root)
        arms = [
            replace(arm, label=f"{arm.label} ({shut})")
            if (shut := found.gate_shut(arm.key))
            else arm
            for arm in panel.arms
            if arm.key in found
        ]
        absent = tuple(arm for arm in panel.arms if arm.key not in found)
        return replace(found, arms=tuple(arms), absent=absent)

    planned = [p for p in figure.panels(order.scale) if p.setting.recipe.data not in absent]
    names = set(map(training.data_of, needed))
    missing = [
        f"Left out, since {name} is not at hand: {why}"
        for name, why in absent.items()
        if name in names
    ]
    if order.scale.part:
        missing.append(f"Asked for was only {order.scale.part}.")
    if len(there) < len(jobs):
        missing.append(f"Left out: {len(jobs) - len(there)} of {len(jobs)} runs, not on record.")
        missing += [f"{panel.title}: {arms}." for panel in planned if (arms := lacking(panel))]
    return Evidence(
        order.scale,
        panels=tuple(panel for panel in map(filled, planned) if panel.arms),
        timings=tuple(map(read_step_times, files(order.timings_of(figure)))),
        missing=tuple(missing),
    )


def section(
    figure: Figure,
    evidence: Evidence,
    tables: Sequence[Table],
    judged: Sequence[Judged],
    *,
    pictured: bool,
) -> str:
    """Return what is written of a figure, in Markdown.

    Raises:
        KeyError: if something is judged that the source has no sentence for.
    """
    said = figure.reported
    lines = [
        f"## {figure.name}: {figure.title}",
        "",
        f"Source: {said.source.title}, {said.place}. Scale: {evidence.scale.name}.",
        "",
        f"Measured: {figure.form(evidence.scale)}.",
        "",
    ]
    changes = {} if said.ours else figure.changes(evidence.scale)
    lines += [f"- {escaped(title)}: {', '.join(each.values())}" for title, each in changes.items()]
    lines += [""] if changes else []
    if said.quotes:
        lines += ["Reported:", ""]
    for name, quote in said.quotes.items():
        other = "" if quote.source is said.source else f"{quote.source.title}, "
        lines.append(f"- *{name}* ({other}{quote.section}): “{escaped(quote.text)}”")
    lines += ["", *(f"{note}\n" for note in said.notes)] if said.quotes else []
    if pictured:
        lines += [f"![{figure.title}]({figure.name}.png)", ""]
    for table in tables:
        lines += [table.to_markdown(), ""]
    verdicts = tally(finding for _, finding in judged)
    lines += [f"Verdict: {verdicts or 'no claim'}.", ""]
    if judged:
        rows = [
            (f"*{quote}*", each.claim, f"**{each.word}**", each.measured)
            for quote, each in judged
            if said.quotes[quote]
        ]
        head = (Column(name, left=True) for name in ("of", "claim", "verdict", "measured"))
        lines += [Table(tuple(head), rows).to_markdown(), ""]
    return "\n".join([*lines, escaped(caption(evidence)), ""])


def write_index(folder: Path, order: Collection[str], drawn: Mapping[str, str]) -> Path:
    """Collect the sections that were just written, and what the page has of other figures."""
    page, sections = folder / "index.md", {}
    if page.exists():
        _, _, rest = page.read_text(encoding="utf-8").partition(_START)
        old = re.split(r"^## ([^:\n]+):", rest, flags=re.MULTILINE)[1:]
        for name, text in zip(old[::2], old[1::2], strict=True):
            sections[name] = f"## {name}:{text.rstrip()}\n"
    sections |= drawn
    there = [name for name in order if name in sections]
    text = "\n".join(sections[name] for name in there)
    rows = [_overview(name, sections[name]) for name in there]
    columns = ("shows", "measured", "verdict", "the first claim that the records decide")
    head = ("item", *(Column(name, left=True) for name in columns))
    rows.append(("all", "", "", _sum(row[3] for row in rows), ""))
    overview = Table(head, rows).to_markdown()
    with replacing(page) as file:
        file.write(f"{_HEAD}{_START}\n\n{overview}\n{text}".encode())
    return page


def _sum(verdicts: Iterable[str]) -> str:
    """Return how many verdicts there are, of several items."""
    counts: Counter[str] = Counter()
    for word, number in re.findall(r"([a-z ]+?) (\d+)", ", ".join(verdicts)):
        counts[word.strip()] += int(number)
    return ", ".join(f"{word} {counts[word]}" for word in CLAIMS.values() if counts[word])


def _overview(name: str, section: str) -> tuple[str, ...]:
    """Return the line of the page's first table that sums up a section."""
    parts = [f"## {name}: (.+)", r"Measured: (.+)\.", r"Verdict: (.+)\."]
    found = [re.search(f"^{part}$", section, re.MULTILINE) for part in parts]
    decided = f"{CLAIMS[Verdict.HOLDS]}|{CLAIMS[Verdict.FAILS]}"
    row = rf"^\| \*.+?\* \| (.+) \| \*\*({decided})\*\* \| (.+) \|$"
    first = re.search(row, section, re.MULTILINE)
    words = f"{first[1]}: **{first[2]}**, {first[3]}" if first else ""
    return name, *(each[1] if each else "" for each in found), words
