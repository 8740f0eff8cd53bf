"""The command `advise`: say whether `auto` pays on a data set."""

from dataclasses import asdict
from typing import Annotated

from torch import nn

import selective_backprop as sb
from selective_backprop_lab.cli.command_line import check_record, console, look_here, save_record
from selective_backprop_lab.cli.options import DATA, Json, Limit, Noise, Root, given, option
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.recipe import find_recipe


def advise(
    data: Annotated[str, option("NAME", DATA)] = "digits",
    root: Root = None,
    seconds: Annotated[float, option("N", "About how many seconds to take.")] = 40.0,
    epochs: Annotated[
        int | None,
        option("N", "Number of epochs that you plan to train. Default: the recipe's.", min=1),
    ] = None,
    limit: Limit = None,
    noise: Noise = 0.0,
    json: Json = None,
) -> None:
    """Say whether `auto` pays on your data.

    Looks for copies, rare classes and wrong labels. Prints at most four lines: whether to select,
    why, what is in the data, and the code to write. Trains nothing.
    """
    check_record(json)
    recipe = given(find_recipe(look_here(data)), epochs=epochs)
    noisy = Composition(noise=noise)(datasets.load(recipe.data, root=root, limit=limit))
    loader = make_loader(noisy, batch_size=recipe.batch_size, seed=0)
    with console.status(f"looking at the data for at most about {seconds:g} s"):
        advice = sb.guide.advise(
            loader, nn.CrossEntropyLoss(), epochs=recipe.epochs, seconds=seconds
        )
    # Lines of code must not be wrapped.
    console.print(str(advice), soft_wrap=True, markup=False, highlight=False)
    save_record(json, {"data": recipe.data, **asdict(advice)})
    if json is not None:
        console.print(f"Written: {json}.", soft_wrap=True)
