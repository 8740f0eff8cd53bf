"""What is made of records, for a person: a table on the terminal, files, and a page."""

from pathlib import Path

from rich.console import Console

from selective_backprop.lab.analysis.loading import Survey
from selective_backprop.lab.analysis.statistics import Axis
from selective_backprop.lab.analysis.summary import (
    comparison_table,
    summarise,
    to_markdown,
)
from selective_backprop.lab.data.folders import make_folder, writing_out
from selective_backprop.lab.report.figures import draw_comparison
from selective_backprop.lab.report.report import write_report


def show_all(console: Console, found: Survey, out: Path) -> None:
    """Print the table, and write it, the figure and the page into a folder."""
    summary = summarise(found.runs, axis=_axis(found))
    make_folder(out)
    console.print(comparison_table(summary))
    with writing_out(out):
        (out / "table.md").write_text(to_markdown(summary), encoding="utf-8")
        draw_comparison(found.runs, out / "comparison.png", axis=_axis(found))
        _write_page(found, out / "report.html")
    console.print(
        f"Open {out / 'report.html'}; table.md and comparison.png lie beside it.", soft_wrap=True
    )


def show_page(console: Console, found: Survey, page: Path) -> None:
    """Print the table, and write the page alone."""
    make_folder(page.parent)
    console.print(comparison_table(summarise(found.runs, axis=_axis(found))))
    with writing_out(page):
        _write_page(found, page)
    console.print(f"Open {page}.", soft_wrap=True)


def folder_of(place: Path) -> Path:
    """Return the folder that a place is, or that a record lies in."""
    return place if place.is_dir() else place.parent


def _axis(found: Survey) -> Axis:
    """Return what time is measured in: CPU seconds on a CPU, which does other work too."""
    on_cpu = all(run.header.device == "cpu" for run in found.runs)
    return "cpu_seconds" if on_cpu else "seconds"


def _write_page(found: Survey, page: Path) -> None:
    write_report(
        found.runs, page, histories=found.histories, problems=found.problems, axis=_axis(found)
    )
