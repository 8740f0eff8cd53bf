"""The command `reproduce`: say what is needed, train what is missing, draw what can be drawn."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

import selective_backprop as sb
from reproductions.jiang2019.index import write_index, write_item
from reproductions.jiang2019.items import Entry, Filled, Found, Item
from reproductions.jiang2019.judging import tally
from reproductions.jiang2019.meeting import meet_all
from reproductions.jiang2019.needs import (
    Errand,
    Need,
    Needs,
    missing_data,
    seeds_of,
    timed_of,
)
from reproductions.jiang2019.pace import Pace
from reproductions.jiang2019.progress import Shown, spell
from reproductions.jiang2019.registry import ITEMS, items_at
from reproductions.jiang2019.settings import Scale
from reproductions.jiang2019.timing import read_step_times
from selective_backprop.lab.data.folders import make_folder
from selective_backprop.lab.records.provenance import hardware
from selective_backprop.lab.records.schema import Run, read_run
from selective_backprop.lab.runner.run_store import RunStore as Place

RUNS = "runs"


@dataclass(frozen=True, kw_only=True)
class Order(Errand):
    """What the command was told.

    Attributes:
        scale: at which to run; the others are those of every errand.
    """

    scale: Scale

    @property
    def place(self) -> Place:
        """Where runs are recorded."""
        return Place(self.out / RUNS / self.scale.name, self.root, self.command, self.every)

    def needs(self, items: Sequence[Item]) -> list[Need]:
        """Return what items need, each thing once."""
        return self._needs.of(items)

    @cached_property
    def _needs(self) -> Needs:
        # Of all that the scale has: planned once, and with the probes of what is drawn later.
        return Needs(items_at(self.scale), self.scale, seeds=self.seeds, device=self.device)


def default_jobs(device: str, threads: int) -> int:
    """Return how many runs there is room for at a time."""
    cores = hardware()["cores"]
    assert isinstance(cores, int)
    return max(1, cores // threads) if device == "cpu" else 1


def list_items(console: Console, items: Sequence[Item], order: Order) -> None:
    """Print what each item needs, what of it is on record, and how long the rest takes."""
    every = order.needs(items)
    absent = missing_data(every, order.root)
    folder = order.place.folder
    met = {need.file(Path()): need.is_met(folder) for need in every}
    pace = Pace([need for need in every if met[need.file(Path())]], folder)
    table = Table(
        title=Text(f"{order.scale.name} scale, {_seeds(order)}, {order.jobs} at a time"),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in ("name", "shows", "needs", "done", "missing", "time left", "data"):
        table.add_column(name, justify="left" if name in {"name", "shows", "data"} else "right")
    for item in items:
        table.add_row(*_row(item, order.needs([item]), met, absent, pace, order))
    table.add_section()
    table.add_row(*_row(None, every, met, absent, pace, order))
    console.print(table)
    for name, why in absent.items():
        console.print(f"{name} is not at hand: {why}", soft_wrap=True)


def reproduce(console: Console, items: Sequence[Item], order: Order) -> None:
    """Train what is missing, then draw every item and the page that collects them.

    Raises:
        DataError: if the data of an item are missing altogether.
        RecordError: if a record cannot be read or written, or nothing is there to draw.
    """
    every, folder = order.needs(items), order.place.folder
    if not order.trains:
        if not any(need.is_met(folder) for need in every):
            raise sb.RecordError(f"nothing of that is on record in {folder}, and --no-train")
        _draw(console, items, order, {})
        return
    absent = missing_data(every, order.root)
    for item in items:
        names = {need.data for need in order.needs([item])}
        if names <= absent.keys():
            raise sb.DataError(f"{item.name}: {absent[min(names)]}")
    make_folder(folder)
    possible = [need for need in every if need.data not in absent]
    met = [need for need in possible if need.is_met(folder)]
    waiting = [need for need in possible if need not in met]
    lacking = len(every) - len(possible)
    console.print(_announced(met, waiting, lacking, order), soft_wrap=True)
    if waiting:
        with Shown(console, waiting) as shown:
            meet_all(waiting, order.place, jobs=order.jobs, threads=order.threads, watch=shown)
    _draw(console, items, order, absent)


def _draw(console: Console, items: Sequence[Item], order: Order, absent: Mapping[str, str]) -> None:
    drawn = []
    for item in items:
        found = gather(item, order, absent)
        if not found.panels and not found.timings:
            console.print(f"{item.name}, {item.title.lower()}: nothing is on record")
            continue
        presented = write_item(item, found, order.out)
        drawn.append(item.name)
        console.print(f"{item.name}, {item.title.lower()}: {tally(presented.findings)}")
        if presented.figure is None:
            for grid in presented.tables:
                console.print(grid.as_text(), soft_wrap=True)
    page = write_index(order.out, ITEMS, drawn)
    console.print(f"Open {page}; figures lie beside it as PNG and SVG.", soft_wrap=True)


def gather(item: Item, order: Order, absent: Mapping[str, str]) -> Found:
    """Read an item's records.

    Args:
        item: what to draw.
        order: where the records are.
        absent: data sets that are not at hand, with why; panels of theirs are left out.
    """
    folder = order.place.folder
    needs = [need for need in order.needs([item]) if need.data not in absent]
    there = {need.file(folder) for need in needs if order.trains or need.is_met(folder)}
    panels = [
        Filled(panel, tuple(entry.arm(_records(entry, order, there)) for entry in panel.entries))
        for panel in item.panels(order.scale)
        if panel.setting.recipe.data not in absent
    ]
    timings = tuple(
        read_step_times(need.file(folder))
        for need in timed_of(item, order.scale, order.device)
        if need.file(folder) in there
    )
    needed = {panel.setting.recipe.data for panel in item.panels(order.scale)}
    missing = [
        f"Left out, since {name} is not at hand: {why}"
        for name, why in absent.items()
        if name in needed
    ]
    if len(there) < len(needs):
        missing.append(f"Left out: {len(needs) - len(there)} of {len(needs)} runs, not on record.")
    shown = tuple(filled for filled in panels if filled.pairs)
    return Found(order.scale, shown, timings, tuple(missing), order.root)


def _records(entry: Entry, order: Order, there: Collection[Path]) -> list[Run]:
    files = (
        need.file(order.place.folder)
        for need in seeds_of(entry, seeds=order.seeds, device=order.device)
    )
    return [read_run(file) for file in files if file in there]


def _announced(met: Sequence[Need], waiting: Sequence[Need], absent: int, order: Order) -> str:
    parts = [f"{len(met)} on record"]
    if absent:
        parts.append(f"{absent} left out for want of their data")
    if waiting:
        time = Pace(met, order.place.folder).total(waiting, jobs=order.jobs)
        parts.append(f"{len(waiting)} to do, about {spell(time)}")
    return f"{len(met) + len(waiting) + absent} runs and measurements: {', '.join(parts)}"


def _row(
    item: Item | None,
    needs: Sequence[Need],
    met: Mapping[Path, bool],
    absent: Mapping[str, str],
    pace: Pace,
    order: Order,
) -> list[str]:
    waiting = [need for need in needs if not met[need.file(Path())]]
    lacking = sorted({need.data for need in needs} & absent.keys())
    data = ", ".join(f"{name} missing" for name in lacking) or ", ".join(
        sorted({need.data for need in needs})
    )
    return [
        item.name if item else "all",
        item.title if item else "everything, shared runs once",
        str(len(needs)),
        str(len(needs) - len(waiting)),
        str(len(waiting)),
        spell(pace.total(waiting, jobs=order.jobs)) if waiting else "–",
        data,
    ]


def _seeds(order: Order) -> str:
    return f"{order.seeds} seed{'' if order.seeds == 1 else 's'}"
