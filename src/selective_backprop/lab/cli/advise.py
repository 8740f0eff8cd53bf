"""The command `advise`: whether selection pays on a model, its data and this machine."""

from dataclasses import asdict
from typing import Annotated

import torch
import typer
from rich.text import Text

import selective_backprop as sb
from selective_backprop.lab.bench.bench import run_advice, write_record
from selective_backprop.lab.bench.tables import show_advice
from selective_backprop.lab.cli.command_line import command_line, console, find_device
from selective_backprop.lab.cli.options import Limit, MeasuringOptions, given
from selective_backprop.lab.training.threads import limit_threads


def advise(
    measuring: MeasuringOptions,
    budget: Annotated[
        float,
        typer.Option(
            metavar="N",
            help="Seconds of wall time to measure for. What does not fit is named at the end.",
        ),
    ] = 120.0,
    epochs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Length of the training that the advice is for. Default: the recipe's.",
        ),
    ] = None,
    limit: Limit = None,
) -> None:
    """Say whether selection pays on a model, its data and this machine, without training it.

    Trains a copy of the model for a moment, times loops of a few batches in interleaved rounds,
    and predicts what an epoch of every strategy would cost, loading included. Looks at where
    losses and gradients lie, says what the project's records know of accuracy, and recommends a
    strategy, or not to select here.
    """
    limit_threads(measuring.threads)
    recipe = given(measuring.recipe, epochs=epochs)
    advice = run_advice(
        console,
        recipe,
        rate=measuring.rate,
        budget=budget,
        device=torch.device(find_device(measuring.device)),
        root=measuring.root,
        limit=limit,
    )
    for part in show_advice(recipe, advice):
        # A line of code that is broken is no code.
        console.print(part, soft_wrap=isinstance(part, Text))
    record = measuring.json
    if record is None:
        return
    try:
        found = {"data": recipe.data, "net": recipe.model, **asdict(advice)}
        write_record(record, command_line(), found)
    except OSError as error:
        raise sb.ConfigurationError(
            f"--json {record}: cannot be written ({error}); name another file"
        ) from error
    console.print(f"Written: {record}.", soft_wrap=True)
