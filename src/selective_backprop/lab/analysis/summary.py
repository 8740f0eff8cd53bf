"""A comparison in numbers: one row per strategy and length, as the table of it shows them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from selective_backprop.lab.analysis.grouping import Comparison, RunGroup, gather
from selective_backprop.lab.analysis.run_summary import headline, listed, notes
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    FACTORS,
    Axis,
    Estimate,
    SpeedUp,
    at,
    final_estimate,
    paired_difference,
    speedups,
)
from selective_backprop.lab.analysis.tables import Column, Table, count, duration, with_interval
from selective_backprop.lab.analysis.worth import Worth, worth
from selective_backprop.lab.records.schema import Run

WORTH = "Worth, as a multiple of its cost in traditional training"
_MOST_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """What a table says of a group; means are over its finished runs."""

    group: RunGroup
    error: Estimate  # percent
    difference: Estimate | None  # to traditional of the same length, in points, over shared seeds
    means: Mapping[Axis, float]  # where its runs end; NaN without any
    speedups: tuple[SpeedUp, ...]  # one per factor; none without traditional
    worth: Worth  # in cost


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Every row of a comparison."""

    comparison: Comparison
    rows: tuple[GroupRow, ...]
    axis: Axis  # what the speed-ups are measured in

    @property
    def ruled(self) -> list[int]:
        """The rows at which another length begins."""
        lengths = [row.group.length for row in self.rows]
        return [i for i in range(1, len(lengths)) if lengths[i] != lengths[i - 1]]


def summarise(runs: Sequence[Run], *, axis: Axis = "seconds") -> Summary:
    """Reduce runs to one row per strategy and length; speed-ups are measured along an axis.

    Raises:
        RecordError: if the runs cannot be compared; see `gather`.
    """
    comparison = gather(runs)
    rows = tuple(_row(group, comparison, axis) for group in comparison.groups)
    return Summary(comparison=comparison, rows=rows, axis=axis)


def comparison_table(summary: Summary) -> Table:
    """Return the table of a comparison: what ran and what it is worth, the rows, the notes."""
    title = headline(summary.comparison)
    if said := worth_words(summary):
        title += f"\n{WORTH}: {said}"
    columns = dict(_COLUMNS)
    if any(not row.worth.reason for row in summary.rows):
        columns |= {Column("worth"): lambda row: row.worth.text}
    return _table(summary, columns, title)


def to_markdown(summary: Summary) -> str:
    """Return the table of a comparison in Markdown, without what it is worth."""
    return _table(summary, _COLUMNS, headline(summary.comparison)).to_markdown()


def worth_words(summary: Summary) -> str:
    """Say what each strategy is worth; nothing where there is none to hold against traditional.

    Of a strategy's lengths the longest counts, and where that gives a bound alone, also the
    longest whose error traditional training reaches.
    """
    rows = [row for row in summary.rows if row.group.runs and not row.group.is_baseline]
    if summary.comparison.baseline is None or not rows:
        return ""
    said: dict[str, list[GroupRow]] = {}
    for row in rows:
        own = said.setdefault(row.group.name, [])
        if not row.worth.reason and (not own or (own[-1].worth.side and not row.worth.side)):
            own.append(row)
    ranked = sorted(filter(None, said.values()), key=lambda own: -own[0].worth.times)
    if not ranked:
        return f"cannot be said, since {listed(sorted({row.worth.reason for row in rows}))}."
    words = [
        " and ".join(f"{row.group.label} {row.worth.words}" for row in own)
        for own in ranked[:_MOST_NAMED]
    ]
    if len(ranked) > _MOST_NAMED:
        words.append(f"{len(ranked) - _MOST_NAMED} others below that")
    return f"{'; '.join(words)}."


def _table(
    summary: Summary, columns: Mapping[Column, Callable[[GroupRow], str]], title: str
) -> Table:
    # A narrow terminal keeps the seconds that speed-ups are measured in.
    dropped = "wall\ns" if summary.axis == "cpu_seconds" else "CPU\ns"
    return Table(
        columns=[
            replace(column, expendable=1) if column.heading == dropped else column
            for column in columns
        ],
        rows=[[cell(row) for cell in columns.values()] for row in summary.rows],
        title=title,
        notes=_notes(summary),
        ruled=summary.ruled,
    )


def name_cell(row: GroupRow) -> str:
    """Return a group's label, with how many of its runs are unfinished."""
    left_out = len(row.group.unfinished)
    return row.group.label + (f" ({left_out} unfinished)" if left_out else "")


def _speedup_cell(position: int) -> Callable[[GroupRow], str]:
    return lambda row: row.speedups[position].text if row.speedups else "–"


NUMBERS: dict[Column, Callable[[GroupRow], str]] = {
    Column("arm"): name_cell,
    Column("final\nerror %"): lambda row: with_interval(row.error),
    Column("scored", expendable=5): lambda row: count(row.means["scored"]),
    Column("trained"): lambda row: count(row.means["trained"]),
    Column("updates", expendable=2): lambda row: count(row.means["updates"]),
    Column("cost\nepochs", expendable=4): lambda row: duration(row.means["cost"]),
    Column("wall\ns"): lambda row: duration(row.means["seconds"]),
    Column("CPU\ns"): lambda row: duration(row.means["cpu_seconds"]),
}
_COLUMNS = NUMBERS | {
    # the one between two others is missed least
    Column(f"to\n{factor:g}×", expendable=expendable): _speedup_cell(FACTORS.index(factor))
    for factor, expendable in ((1.4, 6), (1.2, 3), (1.1, 0))
}


def _row(group: RunGroup, comparison: Comparison, axis: Axis) -> GroupRow:
    baseline, same = comparison.baseline, comparison.same_length(group)
    ends = [run.points[-1] for run in group.runs]
    return GroupRow(
        group=group,
        error=final_estimate(group),
        difference=None if same is None or same is group else paired_difference(group, same),
        means={a: fmean(at(end, a) for end in ends) if ends else math.nan for a in AXIS_WORDS},
        speedups=speedups(group, baseline, axis=axis) if baseline else (),
        worth=worth(group, comparison),
    )


def _notes(summary: Summary) -> list[str]:
    baseline = summary.comparison.baseline
    lines = [
        "Final error: mean of the last tenth of the evaluations; ± 95 % t-interval over seeds. "
        "Scored and trained: examples. Cost: scoring 1, training 3 per example, in passes of "
        "traditional training. Times leave evaluation out."
    ]
    if baseline:
        error = final_estimate(baseline).mean
        lines.append(
            f"to 1.1×: how much sooner, in {AXIS_WORDS[summary.axis]}, the median seed reaches 1.1 "
            f"times the final error of {baseline.label} ({error:.2f} %); never: half the seeds or "
            "more did not."
        )
    return [*lines, *notes(summary.comparison)]
