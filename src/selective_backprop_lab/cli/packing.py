"""The commands `pack` and `unpack`: move records into one compressed file, and back."""

from pathlib import Path
from typing import Annotated

import typer

from selective_backprop_lab.cli.command_line import console, errors
from selective_backprop_lab.records.pack import PACK, unpack_into
from selective_backprop_lab.records.schema import pack_finished

Packed = Annotated[
    list[Path], typer.Argument(metavar="FOLDER", help="Folders of records, as compare writes them.")
]
Pack = Annotated[
    Path, typer.Argument(metavar="PACK", help=f"A pack ({PACK}), or the folder that holds it.")
]
Into = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder for the records, one file each.")
]


def pack(folders: Packed) -> None:
    """Move finished records of a folder into one file, compressed.

    This pack takes a tenth of the space. Commands that read records also read it. To add later
    records, pack again.
    """
    for folder in folders:
        count, problems = pack_finished(folder)
        for problem in problems:
            errors.print(f"warning: {problem}")
        console.print(f"{folder / PACK}: {count} records joined it", soft_wrap=True)


def unpack(source: Pack, folder: Into) -> None:
    """Write the records of a pack as readable files of JSON lines.

    The pack stays as it is.
    """
    files = unpack_into(folder, source / PACK if source.is_dir() else source)
    console.print(f"{folder}: {len(files)} records", soft_wrap=True)
