"""The command line: train one arm, compare several, or measure what they cost."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console

import selective_backprop as sb
from selective_backprop.lab.analysis.loading import survey, with_histories
from selective_backprop.lab.bench.bench import check_files, run_bench, show_bench
from selective_backprop.lab.bench.workload import bench_recipe
from selective_backprop.lab.budget import Length
from selective_backprop.lab.cli import audit_options, bench_options, options
from selective_backprop.lab.cli.advise import advise
from selective_backprop.lab.cli.audit import show_audit
from selective_backprop.lab.cli.command_line import command_line, given, look_here
from selective_backprop.lab.cli.commands import Commands, errors
from selective_backprop.lab.cli.devices import find_device
from selective_backprop.lab.cli.write import folder_of, show_all, show_page
from selective_backprop.lab.data.folders import make_folder
from selective_backprop.lab.recipe import Precision, Recipe, find_recipe
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.runner.grid import recorded, run_rivals
from selective_backprop.lab.runner.progress import Live
from selective_backprop.lab.runner.run_store import Place
from selective_backprop.lab.strategies import DEFAULT_ARMS, Settings, parse_arms, unused
from selective_backprop.lab.training.lr_schedule import Follows
from selective_backprop.lab.training.run_config import Plan
from selective_backprop.lab.training.threads import limit_threads

app = typer.Typer(
    name="selective-backprop",
    cls=Commands,
    help="Train on the examples that still teach the model something, and see whether it pays.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# A folder may be called "[a]" or ":b:", which Rich would otherwise take for style and emoji.
console = Console(markup=False, emoji=False, highlight=False)

DEFAULT_STRATEGIES = ",".join(DEFAULT_ARMS)


@app.command()
def compare(
    data: options.Data = "digits",
    strategies: options.Strategies = DEFAULT_STRATEGIES,
    seeds: options.Seeds = 3,
    epochs: options.Epochs = None,
    budget: options.Budgets = None,
    rate: options.Rate = 1 / 3,
    draw: options.Draw = sb.selectors.Draw.EXACT,
    warmup: options.Warmup = None,
    stale: options.Stale = 3,
    keep: options.Keep = 0.7,
    root: options.Root = None,
    limit: options.Limit = None,
    noise: options.Noise = 0.0,
    model: options.Model = None,
    batch_size: options.BatchSize = None,
    lr: options.LearningRate = None,
    lr_schedule: options.LearningRates = None,
    precision: options.TrainingPrecision = Precision.FP32,
    lr_follows: options.LearningRateFollows = Follows.RUN,
    evaluations: options.Evaluations = 20,
    threads: options.Threads = 1,
    device: options.Device = None,
    out: options.Out = Path("runs/compare"),
    jobs: options.TurnsAtATime = 1,
    checkpoint_every: options.CheckpointEvery = None,
    again: options.Again = False,
) -> None:
    """Train one recipe with several strategies and seeds, side by side.

    Writes a record per run, comparison.png, table.md and report.html into --out, and prints the
    table. A comparison that was interrupted goes on with the runs that are missing, and where runs
    had begun, from their last checkpoints.
    """
    recipe = _recipe(
        data,
        model=model,
        batch_size=batch_size,
        learning_rate=lr,
        rates=lr_schedule,
        precision=precision,
    )
    lengths = _lengths(recipe, epochs, budget)
    limit_threads(threads)
    plans = [
        Plan(
            recipe=recipe,
            arm=arm,
            settings=_settings(length, rate, draw, warmup, stale, keep),
            seed=seed,
            length=length,
            evaluations=evaluations,
            limit=limit,
            device=find_device(device),
            noise=noise,
            lr_follows=lr_follows,
        )
        for seed in range(seeds)
        for length in lengths
        for arm in parse_arms(strategies)
    ]
    place = Place(out, root, command_line(), checkpoint_every)
    try:
        runs = _run(plans, place, again=again, jobs=jobs, threads=threads)
    except sb.LossError:
        show_all(console, with_histories(recorded(plans, out)), out)
        raise
    show_all(console, with_histories(runs), out)


@app.command()
def train(
    data: options.Data = "digits",
    strategy: options.OneStrategy = "auto",
    seed: options.Seed = 0,
    epochs: options.Epochs = None,
    budget: options.Budget = None,
    rate: options.Rate = 1 / 3,
    draw: options.Draw = sb.selectors.Draw.EXACT,
    warmup: options.Warmup = None,
    stale: options.Stale = 3,
    keep: options.Keep = 0.7,
    root: options.Root = None,
    limit: options.Limit = None,
    noise: options.Noise = 0.0,
    model: options.Model = None,
    batch_size: options.BatchSize = None,
    lr: options.LearningRate = None,
    lr_schedule: options.LearningRates = None,
    precision: options.TrainingPrecision = Precision.FP32,
    lr_follows: options.LearningRateFollows = Follows.RUN,
    evaluations: options.Evaluations = 20,
    threads: options.Threads = 1,
    device: options.Device = None,
    out: options.Out = Path("runs/train"),
    checkpoint_every: options.CheckpointEvery = None,
    resume: options.Resume = False,
    again: options.Again = False,
) -> None:
    """Train one recipe with one strategy and seed, into a record.

    Ctrl-C and SIGTERM end it with a checkpoint, from which --resume goes on.
    """
    recipe = _recipe(
        data,
        model=model,
        batch_size=batch_size,
        learning_rate=lr,
        rates=lr_schedule,
        precision=precision,
    )
    (length,) = _lengths(recipe, epochs, None if budget is None else [budget])
    limit_threads(threads)
    arm = _one_arm(strategy)
    settings = _settings(length, rate, draw, warmup, stale, keep)
    for name in unused(arm, settings, _settings(length)):
        errors.print(f"--{name} makes no difference to {arm}")
    plan = Plan(
        recipe=recipe,
        arm=arm,
        settings=settings,
        seed=seed,
        length=length,
        evaluations=evaluations,
        limit=limit,
        device=find_device(device),
        noise=noise,
        lr_follows=lr_follows,
    )
    place = Place(out, root, command_line(), checkpoint_every)
    (run,) = _run([plan], place, again=again, resume=resume)
    last = run.points[-1]
    console.print(
        f"{arm}, seed {seed}: error {last.test_error:.2f} % after {last.epoch:.4g} epochs; "
        f"{last.scored:,} examples scored, {last.trained:,} trained on in {last.updates:,} "
        f"updates: the cost of {last.cost:.2f} traditional epochs, {last.seconds:.1f} s. "
        f"Record: {run.path}",
        soft_wrap=True,
    )


@app.command()
def bench(
    data: bench_options.BenchData = "digits",
    model: options.Model = None,
    rate: options.Rate = 1 / 3,
    scorers: bench_options.Scorers = None,
    seconds: bench_options.Seconds = 120.0,
    root: options.Root = None,
    batch_size: options.BatchSize = None,
    precision: options.TrainingPrecision = Precision.FP32,
    threads: options.Threads = 1,
    device: options.Device = None,
    out: bench_options.BenchOut = Path("bench.png"),
    json: bench_options.Json = None,
) -> None:
    """Measure what scoring and selecting cost on this machine, with a model of yours if you like.

    Times forward and backward passes, every scorer, and an epoch of several strategies, against
    the least that each can cost. Prints tables and draws a figure.
    """
    check_files(out, json)
    limit_threads(threads)
    look_here(model)
    findings = run_bench(
        console,
        given(bench_recipe(data), model=model, batch_size=batch_size),
        rate=rate,
        scorers=None if scorers is None else [name.strip() for name in scorers.split(",")],
        seconds=seconds,
        device=torch.device(find_device(device)),
        root=root,
        precision=precision,
    )
    show_bench(console, findings, out, json, command=command_line())


app.command()(advise)


@app.command()
def report(
    runs: options.Records,
    out: options.ReportOut = None,
) -> None:
    """Draw table, figure and page from records, without training.

    What is wrong with a record is said on the page and here, and the rest is shown.
    """
    found = survey(runs)
    for problem in found.problems:
        errors.print(f"warning: {problem}")
    if out is not None and out.suffix.lower() in {".html", ".htm"}:
        show_page(console, found, out)
    else:
        show_all(console, found, out or folder_of(runs[0]))


@app.command()
def audit(
    runs: audit_options.Records,
    top: audit_options.Top = None,
    against_noise: audit_options.AgainstNoise = False,
    root: options.Root = None,
    out: audit_options.AuditOut = None,
) -> None:
    """Say which training examples look mislabelled, by what runs recorded of them.

    Runs of the same data are taken together. Writes suspects.csv, the most suspicious first, and
    suspects.html with their pictures, into a folder audit beside the records.
    """
    show_audit(console, errors, runs, top=top, against_noise=against_noise, root=root, out=out)


def _recipe(data: str, *, model: str | None, **options: Any) -> Recipe:
    look_here(model)
    return given(find_recipe(data), model=model, **options)


def _one_arm(strategy: str) -> str:
    arms = parse_arms(strategy)
    if len(arms) > 1:
        raise sb.ConfigurationError(
            f"--strategy {strategy}: train runs one strategy; compare runs several"
        )
    return arms[0]


def _lengths(recipe: Recipe, epochs: int | None, budgets: Sequence[str] | None) -> list[Length]:
    if not budgets:
        return [Length("epochs", float(recipe.epochs if epochs is None else epochs))]
    if epochs is not None:
        raise sb.ConfigurationError("give --epochs or --budget, not both")
    return list(dict.fromkeys(options.parse_budget(budget) for budget in budgets))


def _settings(
    length: Length,
    rate: float = 1 / 3,
    draw: sb.selectors.Draw = sb.selectors.Draw.EXACT,
    warmup: float | None = None,
    stale: int = 3,
    keep: float = 0.7,
) -> Settings:
    if warmup is None:
        warmup = min(0.5, 1.0 / length.value) if length.unit == "epochs" else 0.1
    return Settings(rate=rate, draw=draw, warmup=warmup, stale=stale, keep=keep)


def _run(
    plans: Sequence[Plan],
    place: Place,
    *,
    again: bool,
    resume: bool = True,
    jobs: int = 1,
    threads: int = 1,
) -> list[Run]:
    place.data(plans[0])  # missing data are told of before a folder is made
    make_folder(place.folder)
    with Live(console, plans, jobs=jobs) as live:
        return run_rivals(
            plans,
            place,
            jobs=jobs,
            threads=threads,
            watch=live,
            replace=again,
            resume=resume,
        )


def main() -> None:
    """Run the command line, which ends with an exit status.

    Raises:
        SystemExit: always; with 0, 2 where something cannot be done as asked, 130 after
            Ctrl-C or 143 after SIGTERM.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # of an encoding that may lack a minus sign
            stream.reconfigure(errors="replace")
    app(prog_name=app.info.name)
