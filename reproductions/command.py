"""The command line of the reproductions."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import selective_backprop as sb
from reproductions.auto.protocol import STAGES
from reproductions.auto.study import run_study
from reproductions.jiang2019.scales import SCALES, ScaleName
from reproductions.papers import FIGURES, PaperOrder, find_figures, list_figures, reproduce
from reproductions.training import Order, default_jobs
from selective_backprop_lab.cli import options
from selective_backprop_lab.cli.command_line import Commands, find_device
from selective_backprop_lab.cli.options import option
from selective_backprop_lab.names import find_name
from selective_backprop_lab.training.threads import limit_threads

PROGRAM = "scripts/reproduce"
STUDY = {f"study-{name}": name for name in STAGES}
app = typer.Typer(
    name=PROGRAM,
    cls=Commands,
    invoke_without_command=True,
    no_args_is_help=True,
    subcommand_metavar="",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"allow_interspersed_args": True},
)
console = Console(markup=False, emoji=False, highlight=False)

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="list | NAME... | all",
        help=f"What to redo: {', '.join(FIGURES)}; all of these; {', '.join(STUDY)}, the stages "
        "of the study behind auto, each with seeds of its own; study, all of them. "
        "list says what each figure needs, what is on record, and how long the rest takes.",
    ),
]
ScaleOption = Annotated[
    ScaleName,
    option(
        "|".join(ScaleName),
        "Of figures. small: small nets on parts of real data, all within about two hours on "
        "two cores. cifar10: all of CIFAR-10, a few of the figures, in about as long. nets: what "
        "the paper looked at inside MobileNetV2, with that net, in about as long. gpu, "
        "gpu-wide: the same figures with ResNet-18 and Wide-ResNet in bf16, for one GPU and half "
        "an hour or hours. full: the papers' own nets, data and lengths, for a GPU and days.",
    ),
]
Seeds = Annotated[
    int | None,
    option(
        "N",
        "How many seeds to run. Default: 3, and 5 of the study, beside those that learning "
        "rates are found with.",
        min=1,
    ),
]
Out = Annotated[
    Path | None,
    option(
        "FOLDER",
        "Folder for records, figures and tables; a stage of the study has a folder of its own "
        "in it. Default: runs/papers, and runs/study; the same in records with --from-records.",
    ),
]
Hours = Annotated[
    float | None,
    option(
        "H",
        "End every run of figures after so many hours of training, as the paper did after 12, "
        "and 96 on SVHN; what prunes a data set keeps its epochs.",
        min=0.0,
    ),
]
Only = Annotated[
    str | None,
    option(
        "WORKLOAD,...",
        "Train only these workloads of a stage of the study, such as mnist-skewed,digits.",
    ),
]
Arms = Annotated[
    str | None,
    option(
        "STRATEGY,...",
        "Train only these strategies of the study. Its page shows all that is on record.",
    ),
]


@app.callback()
def main(
    names: Names,
    scale: ScaleOption = ScaleName.SMALL,
    seeds: Seeds = None,
    hours: Hours = None,
    only: Only = None,
    arms: Arms = None,
    root: options.Root = None,
    threads: options.Threads = 1,
    jobs: options.Jobs = None,
    device: options.Device = None,
    from_records: options.FromRecords = False,
    out: Out = None,
    checkpoint_every: options.CheckpointEvery = None,
) -> None:
    """Redo figures and tables of the source papers, and the study behind auto.

    What is missing is trained, then everything is drawn. Every run is trained once and shared by
    all that need it; what was interrupted goes on with the runs that are missing, and where runs
    had begun, from their last checkpoints. Records go into --out, and beside them each figure as
    PNG and SVG, each table as text and Markdown, and index.md, which says of every claim what was
    reported, what was measured, and whether the direction agrees; of the study, what auto gained in
    each job. Settings, data and lengths are those of the scale.
    """
    limit_threads(threads)
    # To draw what another machine has trained, its device need not be here.
    where = device if device and from_records else find_device(device)
    given: dict[str, Any] = {
        "device": where,
        "threads": threads,
        "jobs": jobs or default_jobs(where, threads),
        "root": root,
        "command": shlex.join([PROGRAM, *sys.argv[1:]]),
        "trains": not from_records,
        "every": checkpoint_every,
    }
    names = [each for name in names for each in (STUDY if name == "study" else [name])]
    known = (*FIGURES, "all", "list", *STUDY)
    names = [find_name("figure, table or stage", name, known) for name in names]
    stages = [STUDY[name] for name in dict.fromkeys(names) if name in STUDY]
    named = [name for name in names if name not in STUDY]
    lists = "list" in named
    if lists:
        if stages:
            raise sb.ConfigurationError(f"list is of figures and tables, not of {', '.join(STUDY)}")
        named = [name for name in named if name != "list"] or ["all"]
    if named:
        papers = out or (Path("records/papers", scale) if from_records else Path("runs/papers"))
        order = PaperOrder(
            scale=SCALES[scale].ending_after(hours), seeds=seeds or 3, out=papers, **given
        )
        figures = find_figures(named, order.scale)
        (list_figures if lists else reproduce)(console, figures, order)
    for stage in stages:
        folder = (out or Path("records" if from_records else "runs", "study")) / stage
        order = Order(seeds=seeds or 5, out=folder, **given)
        run_study(console, STAGES[stage], order, only=_names(only), arms=_names(arms))


def _names(given: str | None) -> list[str]:
    """Return the names of a comma-separated list."""
    return [name.strip() for name in (given or "").split(",") if name.strip()]
