"""The commands `train` and `compare`: train one recipe with one strategy and seed, or several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import selective_backprop as sb
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.cli.command_line import command_line, console, errors, look_here
from selective_backprop_lab.cli.options import COST, Seeds, TrainingOptions, option
from selective_backprop_lab.cli.report import show
from selective_backprop_lab.records.files import make_folder
from selective_backprop_lab.records.schema import Run
from selective_backprop_lab.runner.grid import RunStore, run_grid
from selective_backprop_lab.runner.progress import RunProgress, judged, seconds_of
from selective_backprop_lab.strategies import (
    DEFAULT_STRATEGIES,
    STRATEGIES,
    TREATMENTS,
    parse_strategies,
)
from selective_backprop_lab.training.run_config import RunConfig


def train(
    training: TrainingOptions,
    strategy: Annotated[
        str, option("NAME", "One strategy, or module:name. The help of compare lists all.")
    ] = "auto",
    seed: Annotated[
        int, option("N", "Seed of weights, order of the data, augmentation and selection.", min=0)
    ] = 0,
    budget: Annotated[str | None, option("COST", COST)] = None,
    out: Annotated[Path, option("FOLDER", "Folder for the record.")] = Path("runs/train"),
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue an interrupted run from its last checkpoint; the result is the same as "
            "without the interruption. Start anew if there is no checkpoint.",
        ),
    ] = False,
) -> None:
    """Train a model with one strategy and seed, and record the run.

    Ctrl-C and SIGTERM end it with a checkpoint for --resume.
    """
    arms = parse_strategies(look_here(strategy))
    if len(arms) > 1:
        raise sb.ConfigurationError(
            f"--strategy {strategy}: train runs one strategy; compare runs several"
        )
    lengths = training.lengths([] if budget is None else [budget], otherwise="epochs")
    (plan,) = training.plans(arms, [seed], lengths)
    if training.rate != TrainingOptions.rate and "rate" not in plan.strategy.options:
        errors.print(f"--rate makes no difference to {plan.arm}")
    store = RunStore(out, training.root, command_line(), training.checkpoint_every)
    (plan,) = training.with_evaluations([plan], store.data(plan))
    (run,) = train_all([plan], store, replace=training.again, resume=resume)
    last = run.points[-1]
    console.print(
        f"{plan.arm}, seed {seed}: {judged(plan, last)} after {last.epoch:.4g} epochs; "
        f"{last.scored:,} examples scored, {last.trained:,} trained on in {last.updates:,} "
        f"updates: the cost of {last.cost:.2f} passes, {seconds_of(plan, last)}. "
        f"Record: {run.path}",
        soft_wrap=True,
    )


def compare(
    training: TrainingOptions,
    strategies: Annotated[
        str,
        option(
            "NAMES",
            f"Strategies to compare, separated by commas: {', '.join(STRATEGIES)}; all; or "
            "module:name for an sb.Strategy of your own, or a function that makes one. You can "
            f"add to each: +{', +'.join(TREATMENTS)}. Add only one of smoothing, robust-loss and "
            "trimming. Of these, kath18, kath18-published and kath18-loss-gated take only "
            "smoothing.",
        ),
    ] = DEFAULT_STRATEGIES,
    seeds: Seeds = 5,
    budget: Annotated[list[str] | None, option("COST", COST)] = None,
    shorter: Annotated[
        bool,
        typer.Option(
            "--shorter/--no-shorter",
            help="Train traditional also for a half and a quarter of each length, so that "
            "strategies are compared with plain training that stops earlier.",
        ),
    ] = True,
    out: Annotated[Path, option("FOLDER", "Folder for records, table, figure and page.")] = Path(
        "runs/compare"
    ),
    jobs: Annotated[
        int,
        option(
            "N",
            "How many processes train at a time. Each process trains all strategies of one seed "
            "and length in turns. With several, each is slower, as they share the machine.",
            min=1,
        ),
    ] = 1,
) -> None:
    """Train with several strategies, side by side and at equal cost.

    Writes a record per run, comparison.png, table.md and report.html into --out, and prints the
    table. To continue after an interruption, repeat the command.
    """
    arms = parse_strategies(look_here(strategies))
    lengths = training.lengths(budget or [], otherwise="cost")
    plain = [arm for arm in arms if arm.partition("+")[0] == "traditional"]
    parts = [
        Budget(each.unit, each.value // by if each.unit == "epochs" else each.value / by)
        for each in lengths
        for by in (2, 4)
    ]
    added = [part for part in dict.fromkeys(parts) if part.value and part not in lengths]
    plans, note = training.plans(arms, range(seeds), lengths), ""
    if shorter and plain and added:
        plans += training.plans(plain, range(seeds), added)
        note = (
            f"{' and '.join(plain)} also runs for {', '.join(map(str, added))}, because plain "
            "training may end lower if it stops earlier; --no-shorter leaves this out"
        )
    store = RunStore(out, training.root, command_line(), training.checkpoint_every)
    plans = training.with_evaluations(plans, store.data(plans[0]))
    from selective_backprop_lab.records.frame import frame_of

    try:
        runs = train_all(
            plans, store, note, jobs=jobs, threads=training.threads, replace=training.again
        )
    except sb.LossError:
        show(frame_of(store.read(plan) for plan in plans), out)
        raise
    show(frame_of(runs), out)


def train_all(
    plans: Sequence[RunConfig], store: RunStore, note: str = "", **options: Any
) -> list[Run]:
    """Run a grid, as `run_grid` does, print a note before, and show its progress."""
    first, before = plans[0], plans[0].pretraining
    if before is not None:
        store.data(before)  # report missing data before making a folder
        console.print(
            f"{first.recipe.model} is first trained on {first.pretrained} for {before.length}, "
            f"unless {store.folder} holds its weights already"
        )
    make_folder(store.folder)
    if note:
        console.print(note)
    with RunProgress(console, plans) as progress:
        return run_grid(plans, store, watch=progress, **options)
