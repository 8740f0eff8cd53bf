"""A table for a terminal and in Markdown, and how numbers are written in it."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import table as rich_table
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.text import Text

from selective_backprop_lab.analysis.estimates import Estimate

_MOST = 10_000  # characters; every table fits into a terminal of this width
_NAME = 21  # characters; a narrow terminal folds longer names of rows between their parts
_PARTS = re.compile(r"(?=\+| @ )|(?<=:)|(?<=[a-z]\.)")


@dataclass(frozen=True)
class Column:
    """A column's heading, and how the column is set."""

    heading: str  # line breaks are kept in a terminal and on a page
    left: bool = False  # whether it is flush left, as the first column always is
    expendable: int = 0  # a narrow terminal leaves out 1 first, then 2; 0 stays

    @property
    def name(self) -> str:
        """The heading on one line."""
        return self.heading.replace("\n", " ")


@dataclass(frozen=True)
class Table:
    """A table of texts, which `console.print` fits into a terminal.

    Columns that matter least are left out if it does not fit, and a note says which. A remark in
    brackets at the end of a cell, and what to try after "open:", get a line of their own.
    """

    columns: Sequence[Column | str]
    rows: Sequence[Sequence[str]]  # each row has one cell per column
    title: str = ""
    notes: Sequence[str] = ()  # lines below the table
    ruled: Sequence[int] = ()  # numbers of rows; a line is drawn above each

    @property
    def set_columns(self) -> list[Column]:
        """The columns, with the first flush left."""
        found = [each if isinstance(each, Column) else Column(each) for each in self.columns]
        return [Column(found[0].heading, True, found[0].expendable), *found[1:]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[object]:
        def needed(padding: int, names: int = _NAME) -> int:
            wide = options.update(max_width=_MOST)
            return Measurement.get(console, wide, self._set(kept, padding, names)).maximum

        room, columns, notes = options.max_width, self.set_columns, list(self.notes)
        kept = list(range(len(columns)))
        for _, position in sorted((c.expendable, i) for i, c in enumerate(columns) if c.expendable):
            if needed(0) > room:
                kept.remove(position)
        if left_out := [column.name for i, column in enumerate(columns) if i not in kept]:
            notes.append(f"A wider terminal also shows: {', '.join(left_out)}.")
        padding = int(needed(1) <= room)
        names = max(_NAME, _NAME + room - needed(padding))
        while names > _NAME and needed(padding, names) > room:
            names -= 1
        yield from [Text(self.title, style="bold")] * bool(self.title)
        yield self._set(kept, padding, names)
        yield from (Text(note, style="dim") for note in notes)

    def to_markdown(self) -> str:
        """Return the table in Markdown, under its title and above its notes."""
        lines = [f"**{escaped(self.title)}**", ""] if self.title else []
        lines.append(piped(column.name for column in self.set_columns))
        lines.append("| " + " | ".join(":--" if c.left else "--:" for c in self.set_columns) + " |")
        lines += [piped(row) for row in self.rows]
        if self.notes:
            lines += ["", *(f"- {escaped(note)}" for note in self.notes)]
        return "\n".join([*lines, ""])

    def _set(self, kept: Sequence[int], padding: int, names: int) -> rich_table.Table:
        table = rich_table.Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, padding, 0, 0))
        for i in kept:
            column = self.set_columns[i]
            table.add_column(
                Text(column.heading),
                justify="left" if column.left else "right",
                no_wrap=i > 0 and not column.left,  # numbers are never broken, texts may be
                overflow="fold",
                max_width=None if i else names,
            )
        for number, row in enumerate(self.rows):
            if number in self.ruled:
                table.add_section()
            name, *cells = (row[i].replace(" (", "\n(").replace("open: ", "open:\n") for i in kept)
            table.add_row(Text(_folded(name, names)), *map(Text, cells))
        return table


def _folded(name: str, width: int) -> str:
    lines = [""]
    for part in (part for line in name.splitlines() for part in ("\n", *_PARTS.split(line))):
        if part == "\n" or len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part.strip() if not lines[-1] else part
    return "\n".join(filter(None, lines))


def with_interval(value: Estimate, *, signed: bool = False) -> str:
    """Return a mean with its interval, if known: "12.34 ± 0.05"; "–" for NaN."""
    if math.isnan(value.mean):
        return "–"
    digits = 3 if 0.0005 <= value.half_width < 0.01 else 2
    sign = "+" if signed else ""
    mean = f"{value.mean:{sign}.{digits}f}".replace("-", "−")
    return f"{mean} ± {value.half_width:.{digits}f}" if value.half_width >= 0.0005 else mean


def in_words(found: Estimate, unit: str) -> str:
    """Return a difference with its interval: `+2.00 ± 0.50 points (3 seeds)`."""
    if not found.seeds:
        return "no seed with both"
    seeds = f"{found.seeds} seed{'' if found.seeds == 1 else 's'}"
    return f"{with_interval(found, signed=True)} {unit} ({seeds})"


def count(number: float) -> str:
    """Return a count to three digits: 950, 12.3k, 4.56M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * unit:
            return f"{duration(number / unit)}{name}"
    return "–" if math.isnan(number) else f"{number:.0f}"


def duration(seconds: float) -> str:
    """Return seconds to three digits, always in seconds, so that rows compare at a glance."""
    if math.isnan(seconds):
        return "–"
    return f"{seconds:.{2 if seconds < 9.995 else 1 if seconds < 99.95 else 0}f}"


def escaped(text: str) -> str:
    """Return a text that Markdown shows unchanged, also in a table, and without pictures."""
    text = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return text.replace("![", "!\\[")


def piped(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table that shows each cell unchanged."""
    return "| " + " | ".join(map(escaped, cells)) + " |"


def percent(share: float) -> str:
    """Return a share in whole per cent, `33 %`, or as it is if it ends in a half: `12.5 %`."""
    return f"{100 * share:.{int(1000 * share % 10 == 5)}f} %"
