"""The command `bench`: measure what scoring and selecting cost on this machine."""

from pathlib import Path
from typing import Annotated

import torch
from rich.progress import BarColumn, Progress, TextColumn

import selective_backprop as sb
from selective_backprop_lab.bench.workload import make_workload
from selective_backprop_lab.cli.command_line import check_record, console, find_device, save_record
from selective_backprop_lab.cli.options import MeasuringOptions, Rate, option
from selective_backprop_lab.data.folders import make_folder, writing_out
from selective_backprop_lab.training.threads import limit_threads

FORMATS = (".png", ".svg", ".pdf")


def bench(
    measuring: MeasuringOptions,
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
    from selective_backprop_lab.bench.figure import draw_bench
    from selective_backprop_lab.bench.harness import measure
    from selective_backprop_lab.bench.tables import show_findings

    if out.suffix.lower() not in FORMATS or out.is_dir():
        raise sb.ConfigurationError(
            f"--out {out}: a file name is needed that ends in one of {', '.join(FORMATS)}"
        )
    make_folder(out.parent)
    check_record(measuring.json)
    limit_threads(measuring.threads)
    recipe, device = measuring.recipe, torch.device(find_device(measuring.device))
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("making and training a model", total=None)

        def tell(rounds: int, spent: float) -> None:
            words = f"round {rounds}, {spent:.0f} of {seconds:g} s"
            progress.update(task, description=words, total=max(seconds, spent), completed=spent)

        workload = make_workload(recipe, rate=rate, device=device, root=measuring.root)
        findings = measure(workload, seconds=seconds, tell=tell)
    for part in show_findings(findings):
        console.print(part)
    save_record(measuring.json, findings)
    with writing_out(out):
        draw_bench(findings, out)
    written = [out] if measuring.json is None else [out, measuring.json]
    console.print(f"Written: {', '.join(map(str, written))}.", soft_wrap=True)
