"""The command line of the reproductions."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import selective_backprop as sb
from reproductions import papers
from reproductions.auto.protocol import STAGES
from reproductions.auto.recovery import run_recovery
from reproductions.auto.study import run_study
from reproductions.headline import headline
from reproductions.headline import live as train_live
from reproductions.jiang2019.scales import SCALES
from reproductions.streams import STREAMS, run_streams
from reproductions.training import Order
from selective_backprop_lab.cli import options
from selective_backprop_lab.cli.command_line import Commands, console, find_device
from selective_backprop_lab.cli.options import option
from selective_backprop_lab.names import find_name
from selective_backprop_lab.records.provenance import hardware
from selective_backprop_lab.training.process import limit_threads

PROGRAM = "scripts/reproduce"
STUDY = {
    name if name == "rules" else f"study-{name}": name for name in (*STAGES, "stream", "recovery")
}
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

_LIVE = (
    "With headline: train Traditional, SB and a shortened Traditional on MNIST anew, for a few "
    "minutes, and print how fast they are beside what is on record."
)
_PART = "Figures and tables show only these; the study's page shows all records."


@app.callback()
def main(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="list | headline | NAME... | all",
            help=f"What to redo: {', '.join(papers.FIGURES)}; or all, for all of these; "
            f"{', '.join(STUDY)}, the stages of the study behind auto; or study, for all stages. "
            "list prints the runs of each figure, how many are on record, and how long the rest "
            "takes. headline says in four lines what the paper reports and what is on record, and "
            "draws figure 7 and table 1.",
        ),
    ],
    scale: Annotated[
        str,
        option(
            "|".join(SCALES),
            "The runs of figures. small: small nets on parts of the data, about two hours on two "
            "cores for all figures. cifar10: a few figures on all of CIFAR-10, also about two "
            "hours. saturated: a few figures on all of MNIST and Fashion-MNIST. nets: a few "
            "figures with MobileNetV2 and ResNet-20, minutes on a GPU. gpu: a few with ResNet-18 "
            "in bf16, half an hour on a GPU. gpu-50, gpu-200: ResNet-18 on CIFAR-10 for 50 or 200 "
            "epochs, minutes a seed on a GPU. full: the papers' own nets, data and lengths, days "
            "on a GPU.",
        ),
    ] = "small",
    seeds: Annotated[
        int | None,
        option("N", "How many seeds are judged. Default: 3; for the study, 5.", min=1),
    ] = None,
    hours: Annotated[
        float | None,
        option(
            "H",
            "End every run of figures after this many hours of training (in the paper 12, and 96 "
            "on SVHN). Runs that prune a data set keep their epochs.",
            min=0.0,
        ),
    ] = None,
    only: Annotated[
        str | None,
        option(
            "DATA,...",
            "Train only on these data, such as cifar10, or for the study mnist-skewed,digits. "
            + _PART,
        ),
    ] = None,
    arms: Annotated[
        str | None,
        option(
            "STRATEGY,...",
            "Train only with these strategies, such as traditional,sb,random, or for the study "
            "traditional,auto. " + _PART,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        option("N", "Train for figures and tables so many epochs instead of the scale's.", min=2),
    ] = None,
    root: options.Root = None,
    threads: options.Threads = 1,
    jobs: options.Jobs = None,
    device: options.Device = None,
    from_records: options.FromRecords = False,
    out: Annotated[
        Path | None,
        option(
            "FOLDER",
            "Folder for records, figures and tables. Each stage of the study gets a folder of its "
            "own in it. Default: runs/papers and runs/study; with --from-records, "
            "records/papers/SCALE and records/study.",
        ),
    ] = None,
    checkpoint_every: options.CheckpointEvery = None,
    live: Annotated[bool, typer.Option("--live", help=_LIVE)] = False,
) -> None:
    """Redo figures and tables of the source papers, and the study behind auto.

    Missing runs are trained, then everything is drawn. Figures share runs. If you interrupt it,
    repeat the command: it continues from the last checkpoints. --out gets the records, each figure
    as PNG and SVG, each table as text and Markdown, and index.md. For every claim, index.md says
    what was reported, what was measured, and whether the direction agrees. For the study, it says
    what auto gained in each job. The scale sets nets, data and lengths.
    """
    scale = find_name("scale", scale, SCALES)
    limit_threads(threads)
    # To draw the runs of another machine, its device need not be here.
    where = device if device and from_records else find_device(device)
    room = max(1, hardware()["cores"] // threads) if where == "cpu" else 1
    given: dict[str, Any] = {"device": where, "threads": threads, "jobs": jobs or room}
    given |= {"root": root, "trains": not from_records, "every": checkpoint_every}
    given |= {"command": shlex.join([PROGRAM, *sys.argv[1:]])}
    known = (*papers.FIGURES, "all", "list", "headline", *STUDY)
    typed = [each for name in names for each in (STUDY if name == "study" else [name])]
    names = [find_name("figure, table or stage", name, known) for name in typed]
    stages = {name: STUDY[name] for name in names if name in STUDY}
    named = [name for name in names if name not in {*STUDY, "list", "headline"}]
    if live and "headline" not in names:
        raise sb.ConfigurationError("--live is of headline: scripts/reproduce headline --live")
    if "headline" in names:
        headline(console, out or Path("runs/headline"))
    if live:
        folder, whole = out or Path("runs/papers"), SCALES["saturated"]
        order = papers.PaperOrder(scale=whole, seeds=seeds or 1, out=folder, **given)
        train_live(console, order)
    lists = "list" in names
    for name, unfit in {"list": lists, "--epochs": epochs}.items():
        if unfit and stages:
            raise sb.ConfigurationError(f"{name} is of figures and tables, not of the study")
    if "study-recovery" in stages and (only or arms):
        raise sb.ConfigurationError("study-recovery takes no part of itself: no --only, no --arms")
    if lists or named:
        place = out or (papers.COMMITTED / scale if from_records else Path("runs/papers"))
        whole = SCALES[scale].ending_after(hours)
        whole = whole.lasting(epochs) if epochs else whole
        figures = papers.find_figures(named or ["all"], whole)
        part, kept = papers.limited(whole, figures, _names(arms), _names(only))
        for figure in (each for each in figures if each not in kept):
            console.print(f"{figure.name}: left out, it needs nothing of {part.part}")
        given["jobs"] = jobs or whole.jobs or given["jobs"]
        order = papers.PaperOrder(scale=part, seeds=seeds or papers.SEEDS, out=place, **given)
        (papers.list_figures if lists else papers.reproduce)(console, kept, order)
    for name, stage in stages.items():
        folder = (out or Path("records" if from_records else "runs", "study")) / stage
        if from_records and len(stages) > 1 and not folder.is_dir():
            console.print(f"{name}: left out, none of its runs is on record")
            continue
        order = Order(seeds=seeds or 5, out=folder, **given)
        part: dict[str, Any] = {"only": _names(only), "arms": _names(arms)}
        if stage == "stream":
            run_streams(console, STREAMS, order, **part)
        elif stage == "recovery":
            run_recovery(console, order)
        else:
            run_study(console, STAGES[stage], order, **part)


def _names(given: str | None) -> list[str]:
    return [name.strip() for name in (given or "").split(",") if name.strip()]
