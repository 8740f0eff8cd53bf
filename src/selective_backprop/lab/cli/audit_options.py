"""What the command `audit` can be told, besides what it has in common with others."""

from pathlib import Path
from typing import Annotated

import typer

Records = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUNS...",
        help="Folders of records, as compare and train write them, or single records; those of "
        "the same data.",
    ),
]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        metavar="N",
        min=1,
        help="List this many examples. Default: all that were believed to be of another class.",
    ),
]
AgainstNoise = Annotated[
    bool,
    typer.Option(
        "--against-noise",
        help="Of runs with --noise: say how many of the flipped labels are found.",
    ),
]
AuditOut = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FOLDER", help="Where to. Default: audit, beside the first record."
    ),
]
