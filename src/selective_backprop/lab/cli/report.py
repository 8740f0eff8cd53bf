"""The command `report`: draw what records say."""

from pathlib import Path
from typing import Annotated

import typer

from selective_backprop.lab.analysis.loading import survey
from selective_backprop.lab.cli.command_line import console, errors
from selective_backprop.lab.cli.write import folder_of, show


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUNS...",
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
    show(console, found, out or folder_of(runs[0]))
