"""The command `advise`: whether selection pays on a model, its data and this machine."""

from dataclasses import asdict, replace
from typing import Annotated

import torch
import typer

import selective_backprop as sb
from selective_backprop.lab.bench.workload import find_images, is_shape
from selective_backprop.lab.cli.command_line import (
    check_record,
    console,
    find_device,
    save_record,
)
from selective_backprop.lab.cli.options import Limit, MeasuringOptions, given, option
from selective_backprop.lab.data.loader import make_loader
from selective_backprop.lab.nets.models import make_model
from selective_backprop.lab.training.threads import limit_threads

MADE_UP = 4096  # images of a shape that is described instead of named
COSTS_ALONE = sb.guide.Recommendation(
    None,
    "No verdict: the images are made up, and tell nothing of your data.",
    ("Give --data the name of a data set. --verbose shows what epochs would cost.",),
)


def advise(
    measuring: MeasuringOptions,
    budget: Annotated[
        float,
        option("N", "Seconds of wall time to measure for. What does not fit is left out."),
    ] = 120.0,
    epochs: Annotated[
        int | None,
        option("N", "Length of the training that the advice is for. Default: the recipe's.", min=1),
    ] = None,
    limit: Limit = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Show also what was measured, cheap scorers, and every strategy.",
        ),
    ] = False,
) -> None:
    """Say whether selection pays on your model, data and machine.

    Looks for copies, rare classes and wrong labels in the data. Trains a copy of the model for a
    moment, times loops of a few batches in interleaved rounds, and predicts what an epoch of every
    strategy would cost, loading included. By that and by the project's records of data like these
    it recommends a strategy, or not to select here, with the lines to write.
    """
    from selective_backprop.lab.bench.tables import show_measurements, show_verdict

    limit_threads(measuring.threads)
    check_record(measuring.json)
    recipe = given(measuring.recipe, epochs=epochs)
    device = torch.device(find_device(measuring.device))
    data = find_images(recipe.data, measuring.root, made=MADE_UP, limit=limit)
    model = recipe.precision.wrap(make_model(recipe.model, data, seed=0)).to(device)
    loader = make_loader(
        data, batch_size=recipe.batch_size, seed=0, augmentation=recipe.augmentation
    )
    plain = make_loader(data, batch_size=recipe.batch_size, seed=0)
    with console.status(f"measuring for about {budget:g} s"):
        advice = sb.guide.advise(
            model,
            loader,
            torch.nn.CrossEntropyLoss(),
            optimizer=recipe.make_optimizer(model.parameters()),
            rate=measuring.rate,
            budget=budget,
            epochs=recipe.epochs,
            data=plain,
            device=device,
        )
    if is_shape(recipe.data):
        costs = {name: replace(each, worth=None) for name, each in advice.forecasts.items()}
        advice = replace(advice, recommendation=COSTS_ALONE, forecasts=costs)
    for line in show_verdict(advice):
        # A line of code that is broken is no code.
        console.print(line, soft_wrap=line.no_wrap)
    for part in show_measurements(recipe, advice) if verbose else ():
        console.print(part)
    found = {"data": recipe.data, "net": recipe.model, **asdict(advice)}
    save_record(measuring.json, found)
    if measuring.json is not None:
        console.print(f"Written: {measuring.json}.", soft_wrap=True)
