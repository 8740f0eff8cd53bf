"""The table of a comparison, one row per arm and length: for a terminal, Markdown and a page."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from selective_backprop.lab.analysis.grouping import Arm, Comparison, gather
from selective_backprop.lab.analysis.run_summary import headline, notes
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    FACTORS,
    Axis,
    Estimate,
    SpeedUp,
    estimate,
    final_error,
    paired_difference,
    speedups,
)
from selective_backprop.lab.records.schema import Point, Run


@dataclass(frozen=True, kw_only=True)
class ArmRow:
    """What a table says of an arm; counts and times are means over its finished runs."""

    arm: Arm
    error: Estimate  # percent
    difference: Estimate | None  # to traditional of the same length, in points, over shared seeds
    scored: float
    trained: float
    updates: float
    cost: float
    seconds: float
    cpu_seconds: float
    speedups: tuple[SpeedUp, ...]  # one per factor; none without traditional


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Every row, with what ran above and what has to be said below."""

    comparison: Comparison
    rows: tuple[ArmRow, ...]
    axis: Axis  # what the speed-ups are measured in


def summarise(runs: Sequence[Run], *, axis: Axis = "seconds") -> Summary:
    """Reduce runs to one row per arm and length.

    Args:
        runs: records of one comparison, in any order.
        axis: what speed-ups are measured in.

    Raises:
        RecordError: if the runs cannot be compared; see `gather`.
    """
    comparison = gather(runs)
    rows = tuple(_row(arm, comparison, axis) for arm in comparison.arms)
    return Summary(comparison=comparison, rows=rows, axis=axis)


def comparison_table(summary: Summary, *, width: int | None = None) -> Table:
    """Return the table for a terminal; what ran stands above it, the notes below.

    Args:
        summary: the rows.
        width: of the terminal, in characters; where the table would not fit, the columns that
            matter least are left out, and the caption says which. None leaves out nothing.
    """
    columns = _fitting(summary.rows, width)
    roomy = width is None or _width(columns, summary.rows, gap=2) <= width
    left_out = [column.name for column in COLUMNS if column not in columns]
    caption = _caption(summary)
    if left_out:
        caption.append(f"A wider terminal shows also: {', '.join(left_out)}.")
    table = Table(
        title=Text(headline(summary.comparison)),
        caption=Text("\n".join(caption), justify="left"),
        title_justify="left",
        title_style="bold",
        caption_style="dim",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1 if roomy else 0, 0, 0),
    )
    for column in columns:
        table.add_column(
            column.heading,
            justify="left" if column is COLUMNS[0] else "right",
            no_wrap=column is not COLUMNS[0],
            overflow="fold",
        )
    previous = None
    for row in summary.rows:
        if previous not in (None, row.arm.length):
            table.add_section()
        previous = row.arm.length
        cells = [_stacked(column.cell(row)) for column in columns]
        table.add_row(Text(_broken(cells[0])), *map(Text, cells[1:]))
    return table


def to_markdown(summary: Summary) -> str:
    """Return the same table in Markdown, with what ran above and the notes below."""
    lines = [
        f"**{_escaped(headline(summary.comparison))}**",
        "",
        "| " + " | ".join(column.name for column in COLUMNS) + " |",
        "| :-- |" + " --: |" * (len(COLUMNS) - 1),
    ]
    for row in summary.rows:
        lines.append("| " + " | ".join(_escaped(column.cell(row)) for column in COLUMNS) + " |")
    return "\n".join([*lines, "", *(f"- {_escaped(line)}" for line in _caption(summary)), ""])


def with_interval(value: Estimate, *, signed: bool = False) -> str:
    """Return a mean with its interval, as many digits as the interval deserves.

    Returns:
        "12.34 ± 0.05"; "12.34" for one seed, whose spread is unknown; "–" for none.
    """
    if not value.seeds:
        return "–"
    digits = 3 if 0.0005 <= value.half_width < 0.01 else 2
    sign = "+" if signed else ""
    mean = f"{value.mean:{sign}.{digits}f}".replace("-", "−")
    return mean if math.isnan(value.half_width) else f"{mean} ± {value.half_width:.{digits}f}"


def count(number: float) -> str:
    """Return a count to three digits: 950, 12.3k, 4.56M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * unit:
            short = number / unit
            return f"{short:.{2 if short < 9.995 else 1 if short < 99.95 else 0}f}{name}"
    return "–" if math.isnan(number) else f"{number:.0f}"


def duration(seconds: float) -> str:
    """Return seconds to three digits, always in seconds, so that rows compare at a glance."""
    if math.isnan(seconds):
        return "–"
    return f"{seconds:.{2 if seconds < 9.995 else 1 if seconds < 99.95 else 0}f}"


def name_cell(row: ArmRow) -> str:
    """Return the arm's label, with how many of its runs are unfinished."""
    left_out = len(row.arm.unfinished)
    return row.arm.label + (f" ({left_out} unfinished)" if left_out else "")


def _speedup_cell(position: int) -> Callable[[ArmRow], str]:
    return lambda row: row.speedups[position].text if row.speedups else "–"


@dataclass(frozen=True)
class Column:
    """One column: every cell is a function of the row alone."""

    heading: str  # the second line is the unit
    cell: Callable[[ArmRow], str]
    expendable: int = 0  # in a narrow terminal 1 goes first; 0 stays

    @property
    def name(self) -> str:
        """The heading on one line."""
        return self.heading.replace("\n", " ")


_NAME = 18  # characters of an arm's name, from which on it may be folded
COLUMNS = (
    Column("arm", name_cell),
    Column("final\nerror %", lambda row: with_interval(row.error)),
    Column("scored", lambda row: count(row.scored)),
    Column("trained", lambda row: count(row.trained)),
    Column("updates", lambda row: count(row.updates), expendable=2),
    Column("cost\nepochs", lambda row: duration(row.cost), expendable=4),
    Column("wall\ns", lambda row: duration(row.seconds)),
    Column("CPU\ns", lambda row: duration(row.cpu_seconds), expendable=1),
    *(
        # the one between two others is missed least
        Column(f"to\n{factor:g}×", _speedup_cell(position), expendable=3 * (factor == FACTORS[1]))
        for position, factor in sorted(enumerate(FACTORS), reverse=True)
    ),
)


def _stacked(text: str) -> str:
    """Return a cell with its remark, as in "never (1 of 3)", on a line of its own."""
    return text.replace(" (", "\n(")


def _broken(name: str) -> str:
    """Return a name that is too long for its column in two lines, the first ending in a hyphen."""
    cut = 1 + name.rfind("-", 0, _NAME)
    return name if len(name) <= _NAME or not cut else f"{name[:cut]}\n{name[cut:]}"


def _fitting(rows: Sequence[ArmRow], width: int | None) -> tuple[Column, ...]:
    columns = COLUMNS
    dispensable = [column for column in COLUMNS if column.expendable]
    for expendable in sorted(dispensable, key=lambda column: column.expendable):
        if width is not None and _width(columns, rows, gap=1) > width:
            columns = tuple(column for column in columns if column is not expendable)
    return columns


def _width(columns: Sequence[Column], rows: Sequence[ArmRow], *, gap: int) -> int:
    """Return the characters that a table needs; a long name may take two lines."""
    cells = ([column.heading, *(_stacked(column.cell(row)) for row in rows)] for column in columns)
    longest = [max(len(line) for cell in column for line in cell.split("\n")) for column in cells]
    longest[0] = min(longest[0], _NAME)
    return sum(longest) + gap * (len(columns) - 1) + 2  # the table's own edges


def _row(arm: Arm, comparison: Comparison, axis: Axis) -> ArmRow:
    def mean(read: Callable[[Point], float]) -> float:
        return fmean(read(run.points[-1]) for run in arm.runs) if arm.runs else math.nan

    baseline, same = comparison.baseline, comparison.same_length(arm)
    return ArmRow(
        arm=arm,
        error=estimate([final_error(run) for run in arm.runs]),
        difference=None if same is None or same is arm else paired_difference(arm, same),
        scored=mean(lambda point: point.scored),
        trained=mean(lambda point: point.trained),
        updates=mean(lambda point: point.updates),
        cost=mean(lambda point: point.cost),
        seconds=mean(lambda point: point.seconds),
        cpu_seconds=mean(lambda point: point.cpu_seconds),
        speedups=speedups(arm, baseline, axis=axis) if baseline else (),
    )


def _caption(summary: Summary) -> list[str]:
    baseline = summary.comparison.baseline
    lines = [
        "Final error: mean of the last tenth of the evaluations; ± 95 % t-interval over seeds. "
        "Scored and trained: examples. Cost: scoring 1, training 3 per example, in passes of "
        "traditional training. Times leave evaluation out."
    ]
    if baseline:
        error = estimate([final_error(run) for run in baseline.runs]).mean
        lines.append(
            f"to 1.1×: how much sooner, in {AXIS_WORDS[summary.axis]}, the median seed reaches 1.1 "
            f"times the final error of {baseline.label} ({error:.2f} %); never: half the seeds or "
            "more did not."
        )
    return [*lines, *notes(summary.comparison)]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
