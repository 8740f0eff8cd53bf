"""The command `bench`: measure what scoring and selecting cost on this machine."""

from pathlib import Path
from typing import Annotated

import torch

import selective_backprop as sb
from selective_backprop_lab.bench.workload import bench_recipe, make_workload
from selective_backprop_lab.cli.command_line import (
    check_record,
    console,
    find_device,
    find_model,
    look_here,
    save_record,
)
from selective_backprop_lab.cli.options import (
    DATA,
    BatchSize,
    Device,
    Json,
    Model,
    Rate,
    Root,
    Threads,
    TrainingPrecision,
    given,
    option,
)
from selective_backprop_lab.data.folders import make_folder, writing_out
from selective_backprop_lab.recipe import Precision
from selective_backprop_lab.training.process import limit_threads

FORMATS = (".png", ".svg", ".pdf")


def bench(
    data: Annotated[str, option("NAME", DATA)] = "digits",
    model: Model = None,
    root: Root = None,
    batch_size: BatchSize = None,
    precision: TrainingPrecision = Precision.FP32,
    threads: Threads = 1,
    device: Device = None,
    json: Json = None,
    rate: Rate = 1 / 3,
    seconds: Annotated[
        float,
        option(
            "N",
            "Start no round after this many seconds, but run at least six rounds. Measuring ends "
            "earlier if every ratio of times is known within 1 %.",
            min=0,
        ),
    ] = 120.0,
    out: Annotated[Path, option("FILE", "File of the figure. Its suffix sets the format.")] = Path(
        "bench.png"
    ),
) -> None:
    """Measure what scoring and selecting cost on this machine.

    In each round, times all ways to score examples and a short training with each strategy.
    Prints what an epoch of each strategy costs and the least that it can cost, and draws a figure.
    """
    from selective_backprop_lab.bench.harness import measure
    from selective_backprop_lab.bench.show import draw_bench, show_findings

    if out.suffix.lower() not in FORMATS or out.is_dir():
        raise sb.ConfigurationError(
            f"--out {out}: a file name is needed that ends in one of {', '.join(FORMATS)}"
        )
    make_folder(out.parent)
    check_record(json)
    limit_threads(threads)
    chosen = {"model": find_model(model), "batch_size": batch_size, "precision": precision}
    recipe = given(bench_recipe(look_here(data)), **chosen)
    with console.status("making and training a model") as status:
        place = torch.device(find_device(device))
        workload = make_workload(recipe, rate=rate, device=place, root=root)

        def tell(rounds: int, spent: float) -> None:
            status.update(f"round {rounds}, {spent:.0f} of {seconds:g} s")

        findings = measure(workload, seconds=seconds, tell=tell)
    for part in show_findings(findings):
        console.print(part)
    save_record(json, findings)
    with writing_out(out):
        draw_bench(findings, out)
    written = [out] if json is None else [out, json]
    console.print(f"Written: {', '.join(map(str, written))}.", soft_wrap=True)
