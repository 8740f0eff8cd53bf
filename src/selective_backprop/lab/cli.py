"""The command line: train one arm, or compare several, on real data."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

import selective_backprop as sb
from selective_backprop.lab import datasets
from selective_backprop.lab.arms import DEFAULT_ARMS, Settings, parse_arms
from selective_backprop.lab.comparing import run_plans
from selective_backprop.lab.comparison import Length
from selective_backprop.lab.figures import draw_comparison
from selective_backprop.lab.live import Live
from selective_backprop.lab.recipes import RECIPES, Rates, Recipe, find_recipe
from selective_backprop.lab.records import Run, read_runs
from selective_backprop.lab.report import write_report
from selective_backprop.lab.runs import Plan
from selective_backprop.lab.tables import comparison_table, summarise, to_markdown

app = typer.Typer(
    name="selective-backprop",
    help="Train on the examples that still teach the model something, and see whether it pays.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

console = Console()

Data = Annotated[str, typer.Option("--data", help=f"Data set: {', '.join(RECIPES)}.")]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root", help="Folder that holds the data set's files, as its publisher ships it."
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", help="Train on this many examples: a fixed, stratified part."),
]
Model = Annotated[
    str | None,
    typer.Option("--model", help="small_cnn, resnet9, resnet9_narrow, or package.module:factory."),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="How many seeds to run, from 0.")]
Epochs = Annotated[
    int | None, typer.Option("--epochs", help="Length of every run in epochs; the recipe's else.")
]
Rate = Annotated[float, typer.Option("--rate", help="Share of the examples to train on, (0, 1].")]
Draw = Annotated[
    sb.Draw, typer.Option("--draw", help="A fixed number from each window, or a coin for each.")
]
Warmup = Annotated[
    float | None,
    typer.Option(
        "--warmup",
        help="Fraction of a run that trains on everything before selection by score begins. "
        "Default: one epoch, or a tenth of a budget.",
    ),
]
BatchSize = Annotated[int | None, typer.Option("--batch-size", help="Rows of a training batch.")]
LearningRate = Annotated[float | None, typer.Option("--lr", help="Highest learning rate.")]
RatesOption = Annotated[
    Rates | None, typer.Option("--lr-schedule", help="How the learning rate moves over a run.")
]
Evaluations = Annotated[
    int, typer.Option("--evaluations", min=1, help="Looks at the test set, evenly over a run.")
]
Threads = Annotated[
    int, typer.Option("--threads", min=1, help="CPU threads; more of them time less evenly.")
]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu or cuda; a GPU is used where there is one.")
]
Out = Annotated[Path, typer.Option("--out", help="Folder for records, figure and page.")]
Again = Annotated[
    bool, typer.Option("--again", help="Run what is recorded already; old records are kept.")
]


@app.command()
def compare(
    data: Data = "digits",
    strategies: Annotated[
        str, typer.Option("--strategies", help="Arms, separated by commas, or all.")
    ] = ",".join(DEFAULT_ARMS),
    seeds: Seeds = 3,
    epochs: Epochs = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            help="Give every arm the same cost instead of the same epochs: 10 for the cost of 10 "
            "traditional epochs (scoring an example 1, training on it 3), 60s for a minute. "
            "Several may be given.",
        ),
    ] = None,
    rate: Rate = 1 / 3,
    draw: Draw = sb.Draw.EXACT,
    warmup: Warmup = None,
    root: Root = None,
    limit: Limit = None,
    model: Model = None,
    batch_size: BatchSize = None,
    lr: LearningRate = None,
    lr_schedule: RatesOption = None,
    evaluations: Evaluations = 20,
    threads: Threads = 1,
    device: Device = None,
    out: Out = Path("runs/compare"),
    again: Again = False,
) -> None:
    """Train one recipe with several strategies and seeds, side by side.

    Writes a record per run, comparison.png, table.md and report.html into --out, and prints the
    table. A comparison that was interrupted goes on with the runs that are missing.
    """
    recipe = _recipe(data, model, batch_size, lr, lr_schedule)
    lengths = _lengths(recipe, epochs, budget)
    _prepare(threads)
    plans = [
        Plan(
            recipe=recipe,
            arm=arm,
            settings=_settings(length, rate, draw, warmup),
            seed=seed,
            length=length,
            evaluations=evaluations,
            limit=limit,
            device=_device(device),
        )
        for seed in range(seeds)
        for length in lengths
        for arm in parse_arms(strategies)
    ]
    runs = _run(plans, root, out, again)
    _show(runs, out)


@app.command()
def train(
    data: Data = "digits",
    strategy: Annotated[str, typer.Option("--strategy", help="The arm.")] = "selective-backprop",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The run's seed.")] = 0,
    epochs: Epochs = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", help="End by cost instead: as for compare, 10 or 60s."),
    ] = None,
    rate: Rate = 1 / 3,
    draw: Draw = sb.Draw.EXACT,
    warmup: Warmup = None,
    root: Root = None,
    limit: Limit = None,
    model: Model = None,
    batch_size: BatchSize = None,
    lr: LearningRate = None,
    lr_schedule: RatesOption = None,
    evaluations: Evaluations = 20,
    threads: Threads = 1,
    device: Device = None,
    out: Out = Path("runs/train"),
    again: Again = False,
) -> None:
    """Train one recipe with one strategy and seed, into a record."""
    recipe = _recipe(data, model, batch_size, lr, lr_schedule)
    (length,) = _lengths(recipe, epochs, None if budget is None else [budget])
    _prepare(threads)
    (arm,) = parse_arms(strategy)[:1]
    plan = Plan(
        recipe=recipe,
        arm=arm,
        settings=_settings(length, rate, draw, warmup),
        seed=seed,
        length=length,
        evaluations=evaluations,
        limit=limit,
        device=_device(device),
    )
    (run,) = _run([plan], root, out, again)
    last = run.points[-1]
    console.print(
        f"{arm}, seed {seed}: error {last.test_error:.2f} % after {last.epoch:.4g} epochs; "
        f"{last.scored:,} examples scored, {last.trained:,} trained on in {last.updates:,} "
        f"updates: the cost of {last.cost:.2f} traditional epochs, {last.seconds:.1f} s. "
        f"Record: {run.path}",
        soft_wrap=True,
        highlight=False,
    )


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of records, as compare writes it.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to; the records' folder else.")
    ] = None,
) -> None:
    """Draw the table, figure and page of a comparison from its records, without training."""
    runs = read_runs(folder)
    _show(runs, out or folder)


def _recipe(
    data: str,
    model: str | None,
    batch_size: int | None,
    lr: float | None,
    lr_schedule: Rates | None,
) -> Recipe:
    if model is not None and ":" in model:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` would, for a model of the user's own
    given = {
        "model": model,
        "batch_size": batch_size,
        "learning_rate": lr,
        "rates": lr_schedule,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(find_recipe(data), **chosen)


def _lengths(recipe: Recipe, epochs: int | None, budgets: Sequence[str] | None) -> list[Length]:
    if not budgets:
        return [Length("epochs", float(recipe.epochs if epochs is None else epochs))]
    if epochs is not None:
        raise sb.ConfigurationError("give --epochs or --budget, not both")
    return list(dict.fromkeys(parse_budget(budget) for budget in budgets))


def parse_budget(text: str) -> Length:
    """Return the length that a budget stands for: `10` is cost, `60s` is seconds.

    Raises:
        ConfigurationError: if it is neither, or not positive.
    """
    number, unit = (text[:-1], "seconds") if text.endswith("s") else (text, "cost")
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise sb.ConfigurationError(
            f"--budget {text}: write a positive number of traditional epochs, such as 10, or of "
            "seconds, such as 60s"
        )
    return Length(unit, value)


def _settings(length: Length, rate: float, draw: sb.Draw, warmup: float | None) -> Settings:
    if warmup is None:
        warmup = min(0.5, 1.0 / length.value) if length.unit == "epochs" else 0.1
    return Settings(rate=rate, draw=draw, warmup=warmup)


def _device(name: str | None) -> str:
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise sb.ConfigurationError(f"--device {name}: {error}".splitlines()[0]) from error
    return name


def _prepare(threads: int) -> None:
    torch.set_num_threads(threads)


def _run(plans: Sequence[Plan], root: Path | None, out: Path, again: bool) -> list[Run]:
    data = datasets.load(plans[0].recipe.data, root=root, limit=plans[0].limit)
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    with Live(console, plans) as live:
        return run_plans(plans, data, out, command=command, watch=live, replace=again)


def _show(runs: Sequence[Run], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    summary = summarise(runs)
    console.print(comparison_table(summary, width=console.width))
    (out / "table.md").write_text(to_markdown(summary), encoding="utf-8")
    draw_comparison(runs, out / "comparison.png")
    write_report(runs, out / "report.html")
    console.print(f"Open {out / 'report.html'}; records and comparison.png lie beside it.")


def main() -> int:
    """Run the command line, and return its exit status."""
    try:
        app()
    except sb.SelectiveBackpropError as error:
        Console(stderr=True).print(f"error: {error}", soft_wrap=True, highlight=False, markup=False)
        return 2
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; what was recorded is kept")
        return 130
    return 0
