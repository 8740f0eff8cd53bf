"""The command line of the reproductions."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reproductions.auto_study.study_command import study
from reproductions.jiang2019.command import Order, default_jobs, list_items
from reproductions.jiang2019.command import reproduce as run_order
from reproductions.jiang2019.registry import ITEMS, find_items
from reproductions.jiang2019.scales import SCALES, ScaleName
from selective_backprop.lab.cli import options
from selective_backprop.lab.cli.command_line import Commands, command_line, find_device
from selective_backprop.lab.training.threads import limit_threads

app = typer.Typer(
    name="scripts/reproduce",
    cls=Commands,
    help="Redo the source papers, and the study behind auto.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
console = Console(markup=False, emoji=False, highlight=False)

Reproduced = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...", help=f"What to redo: {', '.join(ITEMS)}; all of them; or list."
    ),
]

ScaleOption = Annotated[
    ScaleName,
    typer.Option(
        "--scale",
        metavar="|".join(ScaleName),
        help="small: small nets on parts of real data, all within about two hours on two cores. "
        "cifar10: all of CIFAR-10, a few of the figures, in about as long. gpu, gpu-wide: the same "
        "figures with ResNet-18 and Wide-ResNet in bf16, for one GPU and half an hour or hours. "
        "full: the papers' own nets, data and lengths, for a GPU and days.",
    ),
]

ReproduceOut = Annotated[
    Path, typer.Option("--out", metavar="FOLDER", help="Folder for records, figures and tables.")
]


@app.command()
def reproduce(
    names: Reproduced,
    scale: ScaleOption = ScaleName.SMALL,
    seeds: options.Seeds = 3,
    root: options.Root = None,
    threads: options.Threads = 1,
    jobs: options.Jobs = None,
    device: options.Device = None,
    train: options.Train = True,
    out: ReproduceOut = Path("runs/papers"),
    checkpoint_every: options.CheckpointEvery = None,
) -> None:
    """Redo figures and tables of the source papers: train what is missing, then draw.

    Every run is trained once and shared by all that need it; what was interrupted goes on with the
    runs that are missing, and where runs had begun, from their last checkpoints. Writes records
    into --out, and beside them each figure as PNG and SVG, each table as text and Markdown, and
    index.md, which says of every claim what was reported, what was measured, and whether the
    direction agrees.

    list trains nothing: it says what each needs, what is on record, and how long the rest takes.
    """
    limit_threads(threads)
    # To draw what another machine has trained, its device need not be here.
    where = device if device and not train else find_device(device)
    order = Order(
        scale=SCALES[scale],
        seeds=seeds,
        device=where,
        threads=threads,
        jobs=jobs or default_jobs(where, threads),
        root=root,
        out=out,
        command=command_line(),
        trains=train,
        every=checkpoint_every,
    )
    if "list" in names:
        others = [name for name in names if name != "list"]
        list_items(console, find_items(others or ["all"], order.scale), order)
    else:
        run_order(console, find_items(names, order.scale), order)


app.command()(study)
