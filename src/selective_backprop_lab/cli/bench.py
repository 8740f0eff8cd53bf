"""The commands `bench` and `advise`: what selection costs here, and whether `auto` pays on data."""

from dataclasses import asdict
from typing import Annotated

import torch
from torch import nn

import selective_backprop as sb
from selective_backprop_lab.bench.workload import bench_recipe, make_workload
from selective_backprop_lab.cli import options
from selective_backprop_lab.cli.command_line import (
    check_record,
    console,
    find_device,
    look_here,
    save_record,
)
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.nets.models import model_name
from selective_backprop_lab.recipe import Precision, find_recipe
from selective_backprop_lab.training.process import limit_threads


def bench(
    data: Annotated[str, options.option("NAME", options.DATA)] = "digits",
    model: options.Model = None,
    root: options.Root = None,
    batch_size: options.BatchSize = None,
    precision: options.TrainingPrecision = Precision.FP32,
    threads: options.Threads = 1,
    device: options.Device = None,
    json: options.Json = None,
    rate: options.Rate = 1 / 3,
    seconds: Annotated[
        float,
        options.option(
            "N",
            "Start no round after this many seconds, but run at least six rounds. Measuring ends "
            "earlier if every ratio of times is known within 1 %.",
            min=0,
        ),
    ] = 120.0,
) -> None:
    """Measure what scoring and selecting cost on this machine.

    In each round, times all ways to score examples and a short training with each strategy.
    Prints what an epoch of each strategy costs and the least that it can cost.
    """
    from selective_backprop_lab.bench.harness import measure
    from selective_backprop_lab.bench.show import show_findings

    check_record(json)
    limit_threads(threads)
    own = model and model_name(look_here(model))
    chosen = {"model": own, "batch_size": batch_size, "precision": precision}
    recipe = options.given(bench_recipe(look_here(data)), **chosen)
    with console.status("making and training a model") as status:
        place = torch.device(find_device(device))
        workload = make_workload(recipe, rate=rate, device=place, root=root)

        def tell(rounds: int, spent: float) -> None:
            status.update(f"round {rounds}, {spent:.0f} of {seconds:g} s")

        findings = measure(workload, seconds=seconds, tell=tell)
    for part in show_findings(findings):
        console.print(part)
    save_record(json, findings)


def advise(
    data: Annotated[str, options.option("NAME", options.DATA)] = "digits",
    root: options.Root = None,
    seconds: Annotated[float, options.option("N", "About how many seconds to take.")] = 40.0,
    epochs: Annotated[
        int | None,
        options.option(
            "N", "Number of epochs that you plan to train. Default: the recipe's.", min=1
        ),
    ] = None,
    limit: options.Limit = None,
    noise: options.Noise = 0.0,
    json: options.Json = None,
) -> None:
    """Say whether `auto` pays on your data.

    Looks for copies, rare classes and wrong labels. Prints at most four lines: whether to select,
    why, what is in the data, and the code to write. Trains nothing.
    """
    check_record(json)
    recipe = options.given(find_recipe(look_here(data)), epochs=epochs)
    noisy = Composition(noise=noise)(datasets.load(recipe.data, root=root, limit=limit))
    loader = make_loader(noisy, batch_size=recipe.batch_size, seed=0)
    with console.status(f"looking at the data for at most about {seconds:g} s"):
        advice = sb.guide.advise(
            loader, nn.CrossEntropyLoss(), epochs=recipe.epochs, seconds=seconds
        )
    # Lines of code must not be wrapped.
    console.print(str(advice), soft_wrap=True, markup=False, highlight=False)
    save_record(json, {"data": recipe.data, **asdict(advice)})
