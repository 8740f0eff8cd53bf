"""What bench and advise can be told of measuring."""

from pathlib import Path
from typing import Annotated

import typer

from selective_backprop.lab.recipes import RECIPES

BenchData = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="NAME",
        help=f"Data set: {', '.join(RECIPES)}; or hub:NAME for one of the Hugging Face hub. Or the "
        "shape of images that are made up: 3x32x32, or 1x28x28/5 for 5 classes.",
    ),
]
BenchOut = Annotated[
    Path, typer.Option("--out", metavar="FILE", help="The figure, in the format of its suffix.")
]
Scorers = Annotated[
    str | None,
    typer.Option(
        "--scorers",
        metavar="NAMES",
        help="Scorers to time, separated by commas: forward, int8, bf16, half-resolution (of "
        "images of 16 pixels or more), pipelined (on a GPU); for --precision bf16 fp32 instead of "
        "bf16, which forward is there. Default: all.",
    ),
]
Seconds = Annotated[
    float,
    typer.Option(
        "--seconds",
        metavar="N",
        min=0,
        help="Begin no more rounds after so many seconds, unless there are fewer than six. Rounds "
        "end earlier where every ratio is known within 1 %.",
    ),
]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write a record of what was found."),
]
