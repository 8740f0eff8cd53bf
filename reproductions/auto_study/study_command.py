"""The command `study`: what it can be told."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reproductions.auto_study.command import Inquiry, run_study
from reproductions.auto_study.protocol import STAGES, StageName
from reproductions.jiang2019.command import default_jobs
from selective_backprop.lab.cli import options
from selective_backprop.lab.cli.command_line import command_line, find_device
from selective_backprop.lab.training.threads import limit_threads

Stages = Annotated[
    StageName,
    typer.Argument(
        metavar="|".join(StageName),
        help="develop: digits and MNIST, where auto's settings were chosen. confirm: "
        "Fashion-MNIST, CIFAR-10 and CIFAR-100, with seeds of their own.",
    ),
]
StudySeeds = Annotated[
    int,
    typer.Option(
        "--seeds",
        metavar="N",
        min=1,
        help="How many seeds to run: from 0 in develop, from 100 in confirm.",
    ),
]
StudyOut = Annotated[
    Path,
    typer.Option("--out", metavar="FOLDER", help="Folder for records, figures and tables."),
]


def study(
    stage: Stages,
    seeds: StudySeeds = 5,
    root: options.Root = None,
    threads: options.Threads = 1,
    jobs: options.Jobs = None,
    device: options.Device = None,
    train: options.Train = True,
    out: StudyOut = Path("runs/study"),
    checkpoint_every: options.CheckpointEvery = None,
) -> None:
    """Redo the study behind auto: every strategy at several lengths, and what auto was asked for.

    Trains what is missing, as reproduce does, then writes index.md into a folder of --out that
    bears the stage's name: of each goal what was measured, and whether it was reached; beside it
    a figure for each data set. Settings, data, lengths and seeds are fixed in the code.
    """
    limit_threads(threads)
    where = device if device and not train else find_device(device)
    run_study(
        Console(markup=False, emoji=False, highlight=False),
        Inquiry(
            stage=STAGES[stage],
            seeds=seeds,
            device=where,
            threads=threads,
            jobs=jobs or default_jobs(where, threads),
            root=root,
            out=out / stage,
            command=command_line(),
            trains=train,
            every=checkpoint_every,
        ),
    )
