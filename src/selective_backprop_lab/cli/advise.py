"""The command `advise`: say whether `auto` pays on a data set, a model and this machine."""

from dataclasses import asdict, replace
from typing import Annotated

import torch

import selective_backprop as sb
from selective_backprop_lab.bench.workload import find_images, is_shape
from selective_backprop_lab.cli.command_line import (
    check_record,
    console,
    find_device,
    save_record,
)
from selective_backprop_lab.cli.options import Limit, MeasuringOptions, Noise, given, option
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.nets.models import make_model
from selective_backprop_lab.training.threads import limit_threads

MADE_UP = 4096  # number of images, if `--data` is a shape


def advise(
    measuring: MeasuringOptions,
    seconds: Annotated[
        float,
        option("N", "About how many seconds to take."),
    ] = 40.0,
    epochs: Annotated[
        int | None,
        option("N", "Number of epochs that you plan to train. Default: the recipe's.", min=1),
    ] = None,
    limit: Limit = None,
    noise: Noise = 0.0,
) -> None:
    """Say whether `auto` pays on your model, data and machine.

    Looks for copies, rare classes and wrong labels in the data. Trains a copy of the model for a
    few epochs, with and without auto. Prints at most five lines: whether to select, why, the time
    of an epoch, and the code to write.
    """
    limit_threads(measuring.threads)
    check_record(measuring.json)
    recipe = given(measuring.recipe, epochs=epochs)
    device = torch.device(find_device(measuring.device))
    clean = find_images(recipe.data, measuring.root, made=MADE_UP, limit=limit)
    data = Composition(noise=noise)(clean)
    model = recipe.precision.wrap(make_model(recipe.model, data, seed=0)).to(device)
    loader = make_loader(
        data, batch_size=recipe.batch_size, seed=0, augmentation=recipe.augmentation
    )
    with console.status(f"measuring for at most about {seconds:g} s"):
        advice = sb.guide.advise(
            model,
            loader,
            torch.nn.CrossEntropyLoss(),
            optimizer=recipe.make_optimizer(model.parameters()),
            epochs=recipe.epochs,
            data=make_loader(data, batch_size=recipe.batch_size, seed=0),
            seconds=seconds,
            device=device,
        )
    if is_shape(recipe.data):
        advice = replace(
            advice,
            strategy=None,
            verdict="No verdict: the images are made up, so they say nothing about your data.",
            reasons=(f"Cost: {advice.cost}.",),
            code=(),
        )
    # Lines of code must not be wrapped.
    console.print(str(advice), soft_wrap=True, markup=False, highlight=False)
    save_record(measuring.json, {"data": recipe.data, "net": recipe.model, **asdict(advice)})
    if measuring.json is not None:
        console.print(f"Written: {measuring.json}.", soft_wrap=True)
