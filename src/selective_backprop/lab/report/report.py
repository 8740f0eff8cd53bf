"""The report of a comparison: one HTML file that opens anywhere, offline, and asks for nothing."""

import html
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean

from selective_backprop.lab.analysis.findings import findings
from selective_backprop.lab.analysis.grouping import Arm, Comparison
from selective_backprop.lab.analysis.run_summary import facts, headline, notes
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    FACTORS,
    Axis,
    SpeedUp,
    common_span,
    estimate,
    final_error,
    mean_error,
    speedups,
)
from selective_backprop.lab.analysis.tables import (
    COLUMNS,
    ArmRow,
    Summary,
    summarise,
    with_interval,
)
from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.inside_page import inside_part
from selective_backprop.lab.report.markup import arm_table, bullets, figure
from selective_backprop.lab.report.page import frame
from selective_backprop.lab.report.pareto import pareto_plot
from selective_backprop.lab.report.plots import Plot, error_plot, final_plot, phase_plot
from selective_backprop.lab.report.styles import styles

_NOTES = (
    "Cost is counted in passes of traditional training: a forward for scoring counts 1 per "
    "example, forward and backward for training count 3, and an epoch of traditional training, 3 "
    "per example, is 1. It depends on no clock and no machine.",
    "Wall seconds leave evaluation out and hold everything else: loading, scoring, selecting, "
    "forward, backward, step. CPU seconds are those of the training process.",
    "A final error is the mean of the last tenth of a run's evaluations, not the best of them.",
    "Bands and ± are 95 % intervals of Student's t over seeds; with two or three seeds they are "
    "wide. Differences between arms are taken seed by seed. Nothing is corrected for the number "
    "of arms.",
    "A speed-up divides traditional's time by the arm's, medians over seeds, to the first "
    "evaluation that showed the target error or less; a seed that never showed it counts as "
    "infinitely late. Targets are multiples of the final error of the longest traditional "
    "training. Times are known no better than the distance between two evaluations.",
)


def write_report(
    runs: Sequence[Run],
    path: str | Path,
    *,
    histories: Mapping[Path, ExampleHistory] | None = None,
    problems: Sequence[str] = (),
) -> None:
    """Write the report of a comparison.

    The page is written beside its place and then moved there, so that a reader never meets half of
    it. It is about 2 MB, nearly all of it Plotly's own code, compressed.

    Args:
        runs: records of one comparison, in any order, finished or not.
        path: where to, usually ending in .html.
        histories: what became of the examples of these runs, by record; see `survey`.
        problems: what is wrong with the records, in sentences for the page.

    Raises:
        RecordError: if the runs cannot be compared.
        OSError: if the file cannot be written.
    """
    path = Path(path)
    page = _page(summarise(runs), histories or {}, problems)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    # What a command line held may be no text at all; a page with a "?" is better than none.
    try:
        fresh.write_text(page, encoding="utf-8", errors="replace")
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def _page(
    summary: Summary, histories: Mapping[Path, ExampleHistory], problems: Sequence[str]
) -> str:
    comparison = summary.comparison
    found = facts(comparison)
    title = f"Which strategy learns cheapest? {found['data']}, {found['model']}"
    finals, error, pareto, phases = (
        final_plot(comparison),
        error_plot(comparison),
        pareto_plot(comparison),
        phase_plot(comparison),
    )
    inside = inside_part(comparison, histories)
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="quiet">{html.escape(headline(comparison))}</p>',
        *_problems(problems),
        *_findings(summary),
        *bullets(notes(comparison)),
        "<h2>Error as training goes on</h2>",
        *figure(error, _about_curves(comparison)),
        "<h2>The numbers</h2>",
        *_numbers(summary),
        "<h2>How soon each arm gets there</h2>",
        *_soon(summary),
        *_ranked(finals),
        *_final(pareto),
        *_time(phases),
        *inside.body,
        "<h2>What ran</h2>",
        *_facts(comparison),
        "<h2>How to read this</h2>",
        *bullets(_NOTES),
        "<h2>How to do it again</h2>",
        *_again(comparison),
    ]
    plots = [plot.as_json() for plot in (finals, error, pareto, phases, *inside.plots) if plot]
    return frame(title, body, {"plots": plots, "gallery": inside.gallery})


def _problems(problems: Sequence[str]) -> Iterable[str]:
    if problems:
        yield '<section class="problems"><h2>What is wrong with the records</h2>'
        yield f"<ul>{''.join(f'<li>{html.escape(each)}</li>' for each in problems)}</ul></section>"


def _about_curves(comparison: Comparison) -> str:
    text = (
        "Mean over seeds, with the 95 % interval at each evaluation. A click on a name hides or "
        "shows an arm, here and in the figures below; a double click shows it alone."
    )
    if comparison.is_crowd:
        text += " Only traditional and those that end lowest are shown at first."
    elif len(comparison.lengths) > 1:
        text += " Where there are many, the shorter budgets are hidden at first."
    return text


def _findings(summary: Summary) -> Iterable[str]:
    yield '<ul class="findings">'
    for finding in findings(summary):
        yield f"<li><strong>{html.escape(finding.lead)}:</strong> {html.escape(finding.text)}</li>"
    yield "</ul>"


def _numbers(summary: Summary) -> Iterable[str]:
    columns = [column for column in COLUMNS if not column.heading.startswith("to")]
    headings = [column.name for column in columns]
    headings.insert(2, "against traditional")
    look = styles(summary.comparison.arms)
    rows = []
    for row in summary.rows:
        name, *cells = (_remarked(column.cell(row)) for column in columns)
        swatch = f'<span class="swatch" style="background:{look[row.arm.label].colour}"></span>'
        rows.append([swatch + name, cells[0], _difference(row), *cells[1:]])
    yield from arm_table(headings, rows, summary)
    yield (
        '<p class="quiet">Means over seeds. Scored and trained count examples. Against '
        "traditional: the difference of the final errors in points, seed by seed, to traditional "
        "training of the same length.</p>"
    )


def _remarked(cell: str) -> str:
    """Return a cell with its remark, as in "never (1 of 3)", set small."""
    text, bracket, remark = html.escape(cell).partition(" (")
    return f"{text}<small>({remark}</small>" if bracket else text


def _difference(row: ArmRow) -> str:
    return "–" if row.difference is None else with_interval(row.difference, signed=True)


def _soon(summary: Summary) -> Iterable[str]:
    baseline = summary.comparison.baseline
    if baseline is None:
        yield "<p>–, since there is no finished traditional run to set the targets.</p>"
        return
    factors = sorted(FACTORS, reverse=True)
    shown: tuple[Axis, ...] = ("seconds", "cost")
    rows = [
        [
            html.escape(row.arm.label),
            *(
                _speedup(speedup)
                for axis in shown
                for speedup in speedups(row.arm, baseline, factors=factors, axis=axis)
            ),
            _on_the_way(row, summary),
        ]
        for row in summary.rows
    ]
    groups = [("", 1), *((f"in {AXIS_WORDS[axis]}", len(factors)) for axis in shown), ("", 1)]
    headings = ["arm", *(f"to {factor:g}×" for _ in shown for factor in factors)]
    headings.append("mean error on the way %")
    yield from arm_table(headings, rows, summary, groups=groups)
    error = estimate([final_error(run) for run in baseline.runs]).mean
    yield (
        '<p class="quiet">How many times sooner than '
        f"{html.escape(baseline.label)} the median seed reaches 1.4, 1.2 and 1.1 times its final "
        f"error of {error:.2f} %; small: the slowest and the fastest seed. Mean error on the way: "
        "the area under error against cost, divided by the cost, over the part that all arms of "
        "the same length share.</p>"
    )


def _speedup(speedup: SpeedUp) -> str:
    if speedup.ratio is None or speedup.high is None or speedup.seeds < 2:
        return _remarked(speedup.text)
    slowest = "never" if speedup.low is None else f"{speedup.low:.2f}"
    return f"{speedup.ratio:.2f}×<small>{slowest} to {speedup.high:.2f}</small>"


def _on_the_way(row: ArmRow, summary: Summary) -> str:
    alike = [arm for arm in summary.comparison.arms if arm.length == row.arm.length]
    start, end = common_span([run for arm in alike for run in arm.runs])
    areas = [mean_error(run, start, end) for run in row.arm.runs]
    mean = fmean(areas) if areas else math.nan
    return "–" if math.isnan(mean) else f"{mean:.2f}"


def _ranked(plot: Plot | None) -> Iterable[str]:
    if plot is not None:
        yield "<h2>Final error of every arm</h2>"
        yield from figure(
            plot,
            "Each arm's longest runs, the lowest error first: mean over seeds, with the 95 % "
            "interval.",
        )


def _final(plot: Plot | None) -> Iterable[str]:
    if plot is not None:
        yield "<h2>Final error against cost</h2>"
        yield from figure(
            plot,
            "Each point is an arm's whole runs at one length; bars are 95 % intervals over seeds. "
            "An arm pays where it ends below traditional of the same cost by more than the bars. "
            "The dotted line is the Pareto front of the means: no arm is both cheaper and lower "
            "than a point on it.",
        )


def _time(plot: Plot | None) -> Iterable[str]:
    if plot is not None:
        yield "<h2>Where the time went</h2>"
        yield from figure(plot, "Seconds of whole runs, evaluation left out, mean over seeds.")


def _facts(comparison: Comparison) -> Iterable[str]:
    yield "<dl>"
    for name, value in facts(comparison).items():
        yield f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>"
    yield "</dl>"


def _again(comparison: Comparison) -> Iterable[str]:
    commands = dict.fromkeys(run.header.command for run in comparison.runs)
    yield f"<pre>{html.escape(chr(10).join(commands))}</pre>"
    yield f"<details><summary>The {len(comparison.runs)} records behind this page</summary>"
    yield '<div class="wide"><table><thead><tr>'
    yield "<th>record</th><th>arm</th><th>seed</th><th>status</th><th>started</th>"
    yield "</tr></thead><tbody>"
    for arm in comparison.arms:
        for run in (*arm.runs, *arm.unfinished):
            yield _record_row(arm, run)
    yield "</tbody></table></div></details>"


def _record_row(arm: Arm, run: Run) -> str:
    cells = (
        run.name,
        arm.label,
        str(run.header.seed),
        "finished" if run.finished else "unfinished",
        run.header.started,
    )
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
