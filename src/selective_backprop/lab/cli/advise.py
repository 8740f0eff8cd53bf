"""The command `advise`: whether selection pays on a model, its data and this machine."""

from dataclasses import asdict
from typing import Annotated

import torch
from rich.text import Text

import selective_backprop as sb
from selective_backprop.lab.bench.tables import show_advice
from selective_backprop.lab.bench.workload import find_images
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


def advise(
    measuring: MeasuringOptions,
    budget: Annotated[
        float,
        option("N", "Seconds of wall time to measure for. What does not fit is named at the end."),
    ] = 120.0,
    epochs: Annotated[
        int | None,
        option("N", "Length of the training that the advice is for. Default: the recipe's.", min=1),
    ] = None,
    limit: Limit = None,
) -> None:
    """Say whether selection pays on your model, data and machine.

    Looks for copies, rare classes and wrong labels in the data. Trains a copy of the model for a
    moment, times loops of a few batches in interleaved rounds, and predicts what an epoch of every
    strategy would cost, loading included. Looks at where losses and gradients lie, says what the
    project's records know of accuracy, and recommends a strategy, or not to select here.
    """
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
    for part in show_advice(recipe, advice):
        # A line of code that is broken is no code.
        console.print(part, soft_wrap=isinstance(part, Text))
    found = {"data": recipe.data, "net": recipe.model, **asdict(advice)}
    save_record(measuring.json, found)
    if measuring.json is not None:
        console.print(f"Written: {measuring.json}.", soft_wrap=True)
