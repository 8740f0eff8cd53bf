"""The command `advise`: whether selection pays on a model, its data and this machine."""

from typing import Annotated

import torch
import typer
from rich.console import Console

from selective_backprop.lab.bench.advising import run_advice, show_advice
from selective_backprop.lab.bench.workload import bench_recipe
from selective_backprop.lab.cli import bench_options, options
from selective_backprop.lab.cli.command_line import command_line, given, look_here
from selective_backprop.lab.cli.devices import find_device
from selective_backprop.lab.recipe import Precision
from selective_backprop.lab.training.threads import limit_threads

Seconds = Annotated[
    float,
    typer.Option(
        "--budget",
        metavar="N",
        help="Seconds of wall time to measure for. What does not fit is named at the end.",
    ),
]
TrainingEpochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        metavar="N",
        min=1,
        help="Length of the training that the advice is for. Default: the recipe's.",
    ),
]


def advise(
    data: bench_options.BenchData = "digits",
    model: options.Model = None,
    rate: options.Rate = 1 / 3,
    budget: Seconds = 120.0,
    epochs: TrainingEpochs = None,
    root: options.Root = None,
    limit: options.Limit = None,
    batch_size: options.BatchSize = None,
    precision: options.TrainingPrecision = Precision.FP32,
    threads: options.Threads = 1,
    device: options.Device = None,
    json: bench_options.Json = None,
) -> None:
    """Say whether selection pays on a model, its data and this machine, without training it.

    Trains a copy of the model for a moment, times loops of a few batches in interleaved rounds,
    and predicts what an epoch of every strategy would cost, loading included. Looks at where
    losses and gradients lie, says what the project's records know of accuracy, and recommends a
    strategy, or not to select here.
    """
    limit_threads(threads)
    look_here(model)
    recipe = given(bench_recipe(data), model=model, batch_size=batch_size, precision=precision)
    console = Console(markup=False, emoji=False, highlight=False)
    advice = run_advice(
        console,
        recipe,
        rate=rate,
        budget=budget,
        epochs=epochs,
        device=torch.device(find_device(device)),
        root=root,
        limit=limit,
    )
    show_advice(console, recipe, advice, json, command=command_line())
