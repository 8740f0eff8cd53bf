"""The report of a comparison: one HTML file that opens anywhere, offline, and asks for nothing."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from selective_backprop.lab.analysis.findings import findings
from selective_backprop.lab.analysis.grouping import Comparison
from selective_backprop.lab.analysis.run_summary import facts, headline, notes
from selective_backprop.lab.analysis.statistics import (
    FACTORS,
    Axis,
    SpeedUp,
    common_span,
    final_estimate,
    mean_error,
    speedups,
)
from selective_backprop.lab.analysis.summary import NUMBERS, GroupRow, Summary, summarise
from selective_backprop.lab.analysis.tables import Column, Table, with_interval
from selective_backprop.lab.analysis.worth import worth
from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.example_plots import CLASSES, class_plot, life_plot, spread_plot
from selective_backprop.lab.report.examples import gallery, group_histories
from selective_backprop.lab.report.plots import (
    error_plot,
    final_plot,
    pareto_plot,
    phase_plot,
    shown_at_first,
)
from selective_backprop.lab.report.styles import styles

_UNITS: dict[Axis, str] = {"seconds": "wall s", "cpu_seconds": "CPU s"}
# Plotly offers by itself to send a figure to its maker's server; this page has no such button.
_PLOTLY = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}


def write_report(
    runs: Sequence[Run],
    path: str | Path,
    *,
    histories: Mapping[Path, ExampleHistory] | None = None,
    problems: Sequence[str] = (),
    axis: Axis = "seconds",
) -> None:
    """Write the report of a comparison, with its examples' histories, and times along an axis.

    The page is written beside its place and then moved there, so that a reader never meets half of
    it. It is about 5 MB, nearly all of it Plotly's own code.

    Raises:
        RecordError: if the runs cannot be compared.
        OSError: if the file cannot be written.
    """
    path = Path(path)
    page = _page(summarise(runs, axis=axis), histories or {}, problems)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    # What a command line held may be no text at all; a page with a "?" is better than none.
    try:
        fresh.write_text(page, encoding="utf-8", errors="replace")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _page(
    summary: Summary, histories: Mapping[Path, ExampleHistory], problems: Sequence[str]
) -> str:
    comparison = summary.comparison
    kept, without = group_histories(comparison, histories)
    look = styles(comparison.groups)
    shown = frozenset(group.label for group in shown_at_first(comparison))
    seen = shown
    if not any(own.group.label in shown for own in kept):
        seen = frozenset(own.group.label for own in kept)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["drawn"] = _drawn
    return environment.get_template("page.html.j2").render(
        comparison=comparison,
        headline=headline(comparison),
        plotly=Markup(get_plotlyjs()),
        problems=problems,
        findings=findings(summary),
        notes=notes(comparison),
        error=error_plot(comparison),
        hidden=len(shown) < len(comparison.groups),
        numbers=_numbers(summary),
        colours=[look[row.group.label].colour for row in summary.rows],
        soon=_soon(summary),
        final=final_plot(comparison),
        pareto=pareto_plot(comparison),
        phases=phase_plot(comparison),
        kept=kept,
        without=without,
        spread=spread_plot(kept, look, seen),
        classes=class_plot(kept, look, seen) if kept else None,
        most_classes=CLASSES,
        gallery=gallery(kept) if kept else None,
        life=life_plot(kept, look, seen) if kept else None,
        facts=facts(comparison),
        commands=dict.fromkeys(run.header.command for run in comparison.runs),
        records=_records(comparison),
    )


def _drawn(figure: go.Figure, name: str) -> Markup:
    """Return a figure's place on the page, and Plotly's call that draws it."""
    html = figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=_PLOTLY)
    return Markup(html)


def _numbers(summary: Summary) -> Table:
    columns = list(NUMBERS)
    columns.insert(2, Column("against\ntraditional"))
    rows = []
    for row in summary.rows:
        cells = [cell(row) for cell in NUMBERS.values()]
        difference = row.difference
        cells.insert(2, "–" if difference is None else with_interval(difference, signed=True))
        rows.append(cells)
    return Table(
        columns=columns,
        rows=rows,
        ruled=summary.ruled,
        notes=(
            "Means over seeds. Scored and trained count examples. Against traditional: the "
            "difference of the final errors in points, seed by seed, to traditional training of "
            "the same length.",
        ),
    )


def _soon(summary: Summary) -> Table:
    """Return worth and speed-ups, in time and in cost, and the mean error on the way."""
    comparison, baseline = summary.comparison, summary.comparison.baseline
    factors = sorted(FACTORS, reverse=True)
    told = any(not row.worth.reason for row in summary.rows)
    names = [*(["worth"] if told else []), *(f"to {factor:g}×" for factor in factors)]
    axes: tuple[Axis, ...] = (summary.axis, "cost")
    columns = ["arm", *(f"{name}\n{_UNITS.get(axis, axis)}" for axis in axes for name in names)]
    rows = []
    for row in summary.rows:
        cells = [row.group.label]
        for axis in axes:
            cells += [worth(row.group, comparison, axis).text] if told else []
            found = speedups(row.group, baseline, factors=factors, axis=axis) if baseline else ()
            cells += map(_with_range, found) if baseline else ["–"] * len(factors)
        rows.append([*cells, _on_the_way(row, summary)])
    notes = ["–, since there is no finished traditional run to set the targets."]
    if baseline is not None:
        error = final_estimate(baseline).mean
        notes = [
            "Worth: how many times its own time or cost traditional training needs to end at the "
            f"same error. To 1.4×: how many times sooner than {baseline.label} the median seed "
            f"reaches 1.4, 1.2 and 1.1 times its final error of {error:.2f} %; small: the slowest "
            "and the fastest seed. Mean error on the way: the area under error against cost, "
            "divided by the cost, over the part that all of the same length share."
        ]
    columns.append("mean error\non the way %")
    return Table(columns=columns, rows=rows, ruled=summary.ruled, notes=notes)


def _with_range(speedup: SpeedUp) -> str:
    if speedup.ratio is None or speedup.high is None or speedup.seeds < 2:
        return speedup.text
    slowest = "never" if speedup.low is None else f"{speedup.low:.2f}"
    return f"{speedup.ratio:.2f}× ({slowest} to {speedup.high:.2f})"


def _on_the_way(row: GroupRow, summary: Summary) -> str:
    alike = [group for group in summary.comparison.groups if group.length == row.group.length]
    start, end = common_span([run for group in alike for run in group.runs])
    areas = [mean_error(run, start, end) for run in row.group.runs]
    mean = fmean(areas) if areas else math.nan
    return "–" if math.isnan(mean) else f"{mean:.2f}"


def _records(comparison: Comparison) -> Table:
    rows = [
        (
            run.name,
            group.label,
            str(run.header.seed),
            "finished" if run.finished else "unfinished",
            run.header.started,
        )
        for group in comparison.groups
        for run in (*group.runs, *group.unfinished)
    ]
    return Table(columns=("record", "arm", "seed", "status", "started"), rows=rows)
