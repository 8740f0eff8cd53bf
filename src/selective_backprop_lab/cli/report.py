"""The command `report`: draw what records say."""

from pathlib import Path
from typing import Annotated

import typer

from selective_backprop_lab.analysis.grouping import gather
from selective_backprop_lab.analysis.loading import Survey, survey
from selective_backprop_lab.cli.command_line import console, errors, folder_of
from selective_backprop_lab.data.folders import make_folder, writing_out


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUNS",
            help="Folders of records, as compare and train write them, or single records; those of "
            "one comparison.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PLACE",
            help="A file ending in .html for the page alone, else a folder for all that is drawn. "
            "Default: the first folder of records.",
        ),
    ] = None,
) -> None:
    """Draw table, figure and page from records, without training.

    What is wrong with a record is said on the page and here, and the rest is shown.
    """
    found = survey(runs)
    for problem in found.problems:
        errors.print(f"warning: {problem}")
    show(found, out or folder_of(runs[0]))


def show(found: Survey, out: Path) -> None:
    """Print the table of some runs, and draw the rest: a page alone, or all into a folder."""
    from selective_backprop_lab.analysis.findings import PAYS, pays_words
    from selective_backprop_lab.analysis.statistics import Axis
    from selective_backprop_lab.analysis.summary import comparison_table, to_markdown
    from selective_backprop_lab.report.figures import draw_comparison
    from selective_backprop_lab.report.report import write_report

    on_cpu = all(run.header.device == "cpu" for run in found.runs)
    axis: Axis = "cpu_seconds" if on_cpu else "seconds"  # a CPU does other work too
    alone = out.suffix.lower() in {".html", ".htm"}
    page = out if alone else out / "report.html"
    comparison = gather(found.runs)
    make_folder(page.parent)
    console.print(comparison_table(comparison, axis))
    with writing_out(out):
        if not alone:
            (out / "table.md").write_text(to_markdown(comparison, axis), encoding="utf-8")
            draw_comparison(comparison, out / "comparison.png", axis=axis)
        write_report(
            comparison, page, histories=found.histories, problems=found.problems, axis=axis
        )
    beside = "." if alone else "; table.md and comparison.png lie beside it."
    console.print(f"Open {page}{beside}", soft_wrap=True)
    console.print(f"{PAYS} {pays_words(comparison)}")
