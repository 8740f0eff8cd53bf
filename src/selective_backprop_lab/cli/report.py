"""The commands that read records: `report`, `audit`, and `pack`, which moves them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import selective_backprop as sb
from selective_backprop_lab.cli.command_line import console, errors, folder_of
from selective_backprop_lab.cli.options import option
from selective_backprop_lab.names import is_import_path
from selective_backprop_lab.records.files import inside, make_folder, replacing, told
from selective_backprop_lab.records.lines import PACK
from selective_backprop_lab.records.schema import pack_finished

_THEN = "try your own data (--data module:function) or ", "look at odd labels (audit)."


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUNS", help="Folders of records, or single records, all of one comparison."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PLACE",
            help="A file ending in .html for only the page, or a folder for everything. Default: "
            "the first folder of records.",
        ),
    ] = None,
) -> None:
    """Draw table, figure and page from records, without training.

    If something is wrong with a record, a warning and the page say what.
    """
    from selective_backprop_lab.analysis.comparison import read_comparable

    found, problems = read_comparable(runs)
    for problem in show(found, out or folder_of(runs[0]), problems):
        errors.print(f"warning: {problem}")


def show(found: Any, out: Path, problems: Sequence[str] = ()) -> list[str]:
    """Print what runs show, draw the page (into a folder, all), and return all problems."""
    # The modules that compute and draw take longer to import than all the rest of a command.
    from selective_backprop_lab.analysis.comparison import compared, read_histories
    from selective_backprop_lab.analysis.facts import evaluation_note
    from selective_backprop_lab.analysis.findings import conclusion
    from selective_backprop_lab.analysis.summary import comparison_table
    from selective_backprop_lab.analysis.tables import escaped
    from selective_backprop_lab.report.figures import draw_comparison
    from selective_backprop_lab.report.report import write_report

    axis = "cpu_seconds" if found.device.eq("cpu").all() else "seconds"  # other work shares a CPU
    alone = out.suffix.lower() in {".html", ".htm"}
    page = out if alone else out / "report.html"
    comparison = compared(found)
    histories, unread = read_histories(comparison)
    problems = [*problems, *unread]
    make_folder(page.parent)
    (_, text, todo), table = conclusion(comparison), comparison_table(comparison, axis)
    console.print(text, end="\n\n")
    console.print(table)
    with told(out):
        if not alone:
            with replacing(out / "table.md") as file:
                file.write(f"{escaped(text)}\n\n{table.to_markdown()}".encode())
            draw_comparison(comparison, out / "comparison.png", axis=axis)
        write_report(comparison, page, histories=histories, problems=problems, axis=axis)
    if note := evaluation_note(comparison):
        console.print(note)
    beside = "." if alone else "; beside it are table.md and comparison.png."
    console.print(f"Open {page}{beside}", soft_wrap=True)
    console.print("Next:", todo or "".join(_THEN[is_import_path(found.data.iloc[0]) :]))
    return problems


def pack(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER", help="Folders of records, as compare writes them."),
    ],
) -> None:
    """Move finished records of a folder into one file, compressed.

    This pack takes a tenth of the space. Commands that read records also read it, and xzcat prints
    it. To add later records, pack again.
    """
    for folder in folders:
        count, problems = pack_finished(folder)
        for problem in problems:
            errors.print(f"warning: {problem}")
        console.print(f"{folder / PACK}: {count} records joined it", soft_wrap=True)


_PRINTED = 10
_LIKELY = (  # the kinds of `Suspects.likely`, the surest first
    ("wrong", "likely wrong"),
    ("unknown", "of classes that the model has not learned at all"),
    ("hard", "hard"),
    ("rare class", "of a rare class"),
)
_MIXED = " If many labels are wrong, most of those not called likely wrong may be wrong, too."


def audit(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUNS", help="Folders of records, or single records, all of the same data."
        ),
    ],
    top: Annotated[
        int | None,
        option("N", "How many examples to list. Default: all that look mislabelled.", min=1),
    ] = None,
    table: Annotated[
        Path | None,
        option(
            "FILE",
            "Also write a row for every example, in the data set's order, to a .csv or .parquet "
            "file with cleanlab's column names.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option("FOLDER", "Folder to write into. Default: a folder audit beside the first record."),
    ] = None,
) -> None:
    """Say which training examples look mislabelled.

    Ranks the examples by how much the model doubted their labels during training, over all runs of
    the same data. Writes suspects.csv, the most suspicious first, and suspects.html with pictures.
    """
    from selective_backprop_lab.report.audit import audit_runs, top_table, write_list

    found = audit_runs(runs)
    folder = out or inside(folder_of(runs[0]), "audit")
    make_folder(folder)
    for problem in found.problems:
        errors.print(f"warning: {problem}")
    suspects = found.suspects
    count = suspects.suspicious if top is None else min(top, len(suspects))
    _sum_up(found)
    if count:
        console.print(top_table(found, min(count, _PRINTED)))
    with told(folder):
        written = write_list(found, folder, count)
    if table is not None:
        known = {**sb.guide.example_table(suspects), "mean_loss": found.mean("loss_mean")}
        with told(table):
            sb.guide.write_table(known, table)
    console.print(
        f"{count:,} examples are listed in {' and '.join(map(str, written))}.", soft_wrap=True
    )


def _sum_up(found: Any) -> None:
    suspects, names = found.suspects, ", ".join(found.runs.arm.unique())
    console.print(
        f"{found.runs.data.iloc[0]}: {suspects.suspicious:,} of {suspects.examples:,} training "
        f"examples ({suspects.suspicious / suspects.examples:.1%}) have a suspicion above 0. On "
        f"average {len(found.runs)} run{'s' * (len(found.runs) > 1)} ({names}) believed another "
        "class more than the label.",
        soft_wrap=True,
    )
    if suspects.suspicious:
        kinds = Counter(each.partition(":")[0] for each in suspects.likely())
        said = ", ".join(f"{kinds[kind]:,} {words}" for kind, words in _LIKELY if kinds[kind])
        mixed = _MIXED * (suspects.suspicious > kinds["wrong"])
        console.print(f"Of these, the surest first: {said}.{mixed}", soft_wrap=True)
