"""The commands `bench` and `advise`: what selection costs here, and whether `auto` pays on data."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import Annotated, Any

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
from selective_backprop_lab.strategies import TIMED, parse_strategies
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
    strategies: Annotated[
        str,
        options.option(
            "NAMES",
            "Strategies to time beside traditional, as for compare, in the middle of training. If "
            "a strategy's epochs differ, as those of stale-sb, the median epoch counts.",
        ),
    ] = ",".join(TIMED),
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

    check_record(json)
    arms = parse_strategies(look_here(strategies))
    limit_threads(threads)
    own = model and model_name(look_here(model))
    chosen = {"model": own, "batch_size": batch_size, "precision": precision}
    recipe = options.given(bench_recipe(look_here(data)), **chosen)
    with console.status("making and training a model") as status:
        place = torch.device(find_device(device))
        workload = make_workload(recipe, rate=rate, device=place, root=root)

        def tell(rounds: int, spent: float) -> None:
            status.update(f"round {rounds}, {spent:.0f} of {seconds:g} s")

        findings = measure(workload, seconds=seconds, tell=tell, names=arms)
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


def show_findings(findings: Mapping[str, Any]) -> Iterator[Any]:
    """Return what `bench` prints: what was measured, a step, the scorers and the strategies."""
    from selective_backprop_lab.analysis.tables import Table

    config, rounds = findings["config"], findings["rounds"]
    image = "x".join(map(str, config["image"]))
    rate = Fraction(config["rate"]).limit_denominator(100)
    yield (
        "{model} on {data}, images of {0}, batches of {batch_size} in {precision}, a rate of {1}, "
        "on {device}; {clock}; median and 95 % interval of {2} interleaved rounds."
    ).format(image, rate, rounds, **{**config, "rate": ""})
    shares = ", ".join(f"{name} {value:.4g} ms" for name, value in findings["step"].items())
    yield f"1,000 examples take: {shares}."
    backward = "A backward pass takes {median:.2f} ({low:.2f} to {high:.2f}) forward passes."
    yield backward.format(**findings["backward"])
    yield Table(
        ("scorer", "cost", "95 %", "of fp32", "95 %", "correlation", "overlap"),
        [
            (
                name,
                *_both(s["cost"]),
                *_both(s["of_full"]),
                _known(s["correlation"], ".3f"),
                _known(s["overlap"], ".1%"),
            )
            for name, s in findings["scorers"].items()
        ],
        title="Scoring, relative to exact scoring of the same candidates",
        notes=[
            f"Cost: relative to exact scoring in {findings['config']['precision']}, the "
            "training's precision; of fp32: relative to exact scoring in fp32. 95 %: interval of "
            "the median. Correlation: of ranks, with exact scores in fp32. Overlap: the share of "
            "selected candidates that exact scores would select too. The model was trained briefly."
        ],
    )
    for name, remark in findings["remarks"].items():
        yield f"{name}: {'' if name in findings['scorers'] else 'not timed: '}{remark}"
    yield Table(
        ("strategy", "epoch", "95 %", "gain", "limit", "to limit", "95 %"),
        [
            (
                name,
                *_both(s["relative"]),
                f"{1 / s['relative']['median']:.2f}×",
                f"{s['limit']['median']:.3f}",
                *_both(s["over_limit"]),
            )
            for name, s in findings["strategies"].items()
        ],
        title="An epoch, relative to an epoch of traditional training",
        notes=[
            "Computed from short epochs. 95 %: interval of the median. Limit: the least "
            "that an epoch can cost: exact scoring of what is scored, ordinary steps on what is "
            "kept, and the strategy's own loading. To limit: the epoch divided by its limit."
        ],
    )


def _both(ratio: Mapping[str, Any]) -> tuple[str, str]:
    return f"{ratio['median']:.3f}", f"{ratio['low']:.2f}–{ratio['high']:.2f}"


def _known(value: float, how: str) -> str:
    return "–" if math.isnan(value) else format(value, how)  # NaN if the model diverged
