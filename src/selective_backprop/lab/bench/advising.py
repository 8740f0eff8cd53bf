"""Advice as it is asked for on a command line, and as tables and sentences for a terminal."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from torch import nn

import selective_backprop as sb
from selective_backprop.lab.bench.workload import is_shape, made_up
from selective_backprop.lab.data import datasets
from selective_backprop.lab.data.loader import make_loader
from selective_backprop.lab.nets.models import make_model
from selective_backprop.lab.recipe import Recipe
from selective_backprop.lab.records.provenance import code_version, hardware, versions
from selective_backprop.lab.records.schema import utc_now

MADE_UP = 4096  # images of a shape that is described instead of named


def run_advice(
    console: Console,
    recipe: Recipe,
    *,
    rate: float,
    budget: float,
    epochs: int | None,
    device: torch.device,
    root: Path | None,
    limit: int | None,
) -> sb.guide.Advice:
    """Ask for advice on a recipe's training, and show that it takes a while.

    Args:
        console: where to.
        recipe: of the training.
        rate: share of the candidates that selection keeps, in (0, 1].
        budget: seconds of wall time.
        epochs: of the whole training; None for the recipe's.
        device: where to train.
        root: folder of the data set's files.
        limit: train on this many examples; None for all.

    Raises:
        ConfigurationError: if the model cannot be made or trained, or an option cannot work.
    """
    if is_shape(recipe.data):
        data = made_up(recipe.data, MADE_UP if limit is None else limit)
    else:
        data = datasets.load(recipe.data, root=root, limit=limit)
    model = recipe.precision.wrap(make_model(recipe.model, data, seed=0)).to(device)
    loader = make_loader(
        data, batch_size=recipe.batch_size, seed=0, augmentation=recipe.augmentation
    )
    with console.status(f"measuring for about {budget:g} s"):
        return sb.guide.advise(
            model,
            loader,
            nn.CrossEntropyLoss(),
            optimizer=recipe.make_optimizer(model.parameters()),
            rate=rate,
            budget=budget,
            epochs=recipe.epochs if epochs is None else epochs,
            device=device,
        )


def show_advice(
    console: Console, recipe: Recipe, advice: sb.guide.Advice, record: Path | None, *, command: str
) -> None:
    """Print what was found and what to do, and write the record if one is asked for.

    Raises:
        ConfigurationError: if the file cannot be written.
    """
    for line in describe(recipe, advice):
        console.print(line)
    if advice.scorers:
        console.print(scorer_table(advice))
    console.print(forecast_table(advice))
    for line in conclude(advice):
        indent = len(line) - len(line.lstrip())
        console.print(Padding(Text(line.lstrip()), (0, 0, 0, indent), expand=False))
    for line in advice.recommendation.code:
        console.print(f"    {line}", soft_wrap=True)  # a line that is cut is no code
    for line in remark(advice):
        console.print(line)
    if record is None:
        return
    found = {
        "command": command,
        "written": utc_now(),
        "code_version": code_version(),
        "versions": versions(),
        "hardware": hardware(),
        "data": recipe.data,
        "net": recipe.model,
        **_plain(asdict(advice)),
    }
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise sb.ConfigurationError(
            f"--json {record}: cannot be written ({error}); name another file"
        ) from error
    console.print(f"Written: {record}.", soft_wrap=True)


def describe(recipe: Recipe, advice: sb.guide.Advice) -> Iterator[str]:
    """Say what was measured, where the time goes, and where losses and gradients lie."""
    config = advice.config
    rate = Fraction(config["rate"]).limit_denominator(100)
    yield (
        f"{recipe.model} on {recipe.data}, {config['examples']:,} examples, batches of "
        f"{config['batch_size']}, a rate of {rate}, on {config['device']}; {config['clock']}; "
        f"{advice.rounds} round{'s' * (advice.rounds > 1)} in {advice.seconds:.0f} s."
    )
    ordered = sorted(advice.shares.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{phase} {share:.0%}" for phase, share in ordered if share >= 0.005)
    yield f"A traditional epoch is {shares}."
    yield (
        f"A backward pass takes {advice.backward.median:.2f} forward passes; scoring an example "
        f"takes {advice.scoring.median:.2f} of training on it."
    )
    found = advice.redundancy
    if found is None:
        return
    if is_shape(recipe.data):
        yield "The images are made up: the costs are real, the losses and gradients not yours."
    yield (
        f"After {found.steps} steps on a copy, of {found.examples:,} examples: a tenth of the "
        f"losses are below {found.quantiles[2]:.3g}, half below {found.quantiles[10]:.3g}, nine "
        f"tenths below {found.quantiles[18]:.3g}. The highest {found.rate:.0%} hold "
        f"{found.loss_share:.0%} of the loss and supply {found.gradient_share:.0%} of the gradient."
    )
    yield (
        f"Against the gradient of all, theirs has a cosine of {found.cosine:.2f} (a random "
        f"selection's: {found.random_cosine:.2f}) and the sign of {found.equal_signs:.0%} of the "
        f"parameters (random: {found.random_equal_signs:.0%})."
    )


def scorer_table(advice: sb.guide.Advice) -> Table:
    """Return one row per cheap scorer: its cost beside exact scoring, and how far it agrees."""
    table = _table("Cheap scorers", "scorer", "cost", _spread(advice), "correlation", "overlap")
    for name, each in advice.scorers.items():
        table.add_row(
            name,
            f"{each.cost.median:.2f}",
            f"{each.cost.low:.2f}–{each.cost.high:.2f}",
            "–" if math.isnan(each.correlation) else f"{each.correlation:.3f}",
            "–" if math.isnan(each.overlap) else f"{each.overlap:.0%}",
        )
    table.caption = Text("Cost: in exact scoring. Overlap: of the highest share that is selected.")
    return table


def forecast_table(advice: sb.guide.Advice) -> Table:
    """Return one row per strategy, the cheapest epoch first."""
    table = _table(
        "An epoch while selecting, predicted",
        "strategy",
        "seconds",
        "relative",
        _spread(advice),
        "training",
    )
    ordered = sorted(advice.forecasts.items(), key=lambda item: item[1].relative.median)
    for name, each in ordered:
        table.add_row(
            f"{name} *" if each.varies else name,
            f"{each.seconds.median:.3g}",
            f"{each.relative.median:.2f}",
            f"{each.relative.low:.2f}–{each.relative.high:.2f}",
            "–" if each.training is None else f"{each.training:.2f}",
        )
    table.caption = Text(
        "Relative: to traditional training's. Training: the whole of it, with the epochs in which "
        "it does not select. * depends on the losses, and changes as the model learns."
    )
    return table


def _spread(advice: sb.guide.Advice) -> str:
    """Say what the ends beside a median are: of few rounds there is no interval."""
    return "95 %" if advice.rounds >= 6 else "all rounds"


def conclude(advice: sb.guide.Advice) -> Iterator[str]:
    """Say what is known of accuracy, and what to do and why."""
    yield "At equal cost, on MNIST and Fashion-MNIST, the records of this project say:"
    said: dict[str, list[str]] = {}
    for name, each in advice.forecasts.items():
        said.setdefault(each.known, []).append(name)
    for known, names in said.items():
        yield f"  {', '.join(names)}: {known}."
    advised = advice.recommendation
    yield ""
    yield (
        "Do not select here." if advised.strategy is None else f"Try {advised.strategy}, because:"
    )
    for reason in advised.reasons:
        yield f"  {reason}"


def remark(advice: sb.guide.Advice) -> Iterator[str]:
    """Say what has to be said of scorers, and what is missing."""
    for name, words in advice.remarks.items():
        yield f"{name}: {words}"
    for what in advice.left_out:
        yield f"Left out for want of time: {what}."


def _plain(value: Any) -> Any:
    """Return what JSON can hold: no number that is none."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table(title: str, *columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=Text(title))
    table.title_justify, table.title_style = "left", "bold"
    table.caption_justify, table.caption_style = "left", "dim"
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table
