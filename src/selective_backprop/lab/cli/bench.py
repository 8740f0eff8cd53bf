"""The command `bench`: what scoring and selecting cost on this machine."""

from pathlib import Path
from typing import Annotated

import torch
import typer

import selective_backprop as sb
from selective_backprop.lab.bench.bench import run_bench, write_record
from selective_backprop.lab.bench.figure import draw_bench
from selective_backprop.lab.bench.tables import show_findings
from selective_backprop.lab.cli.command_line import command_line, console, find_device
from selective_backprop.lab.cli.options import MeasuringOptions
from selective_backprop.lab.training.threads import limit_threads

FORMATS = (".png", ".svg", ".pdf")


def bench(
    measuring: MeasuringOptions,
    scorers: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Scorers to time, separated by commas: forward, int8, bf16, half-resolution (of "
            "images of 16 pixels or more), pipelined (on a GPU); for --precision bf16 fp32 instead "
            "of bf16, which forward is there. Default: all.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            metavar="N",
            min=0,
            help="Begin no more rounds after so many seconds, unless there are fewer than six. "
            "Rounds end earlier where every ratio is known within 1 %.",
        ),
    ] = 120.0,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The figure, in the format of its suffix."),
    ] = Path("bench.png"),
) -> None:
    """Measure what scoring and selecting cost on this machine, with a model of yours if you like.

    Times forward and backward passes, every scorer, and an epoch of several strategies, against
    the least that each can cost. Prints tables and draws a figure.
    """
    record = measuring.json
    _check_files(out, record)
    limit_threads(measuring.threads)
    findings = run_bench(
        console,
        measuring.recipe,
        rate=measuring.rate,
        scorers=None if scorers is None else [name.strip() for name in scorers.split(",")],
        seconds=seconds,
        device=torch.device(find_device(measuring.device)),
        root=measuring.root,
    )
    for part in show_findings(findings):
        console.print(part)
    try:
        if record is not None:
            write_record(record, command_line(), findings.as_dict())
        draw_bench(findings, out)
    except OSError as error:
        raise sb.ConfigurationError(
            f"--out {out}, --json {record}: cannot be written ({error}); name other files"
        ) from error
    written = [out] if record is None else [out, record]
    console.print(f"Written: {', '.join(map(str, written))}.", soft_wrap=True)


def _check_files(out: Path, record: Path | None) -> None:
    """Refuse files that could not be written once all is measured; make their folders."""
    if out.suffix.lower() not in FORMATS or out.is_dir():
        raise sb.ConfigurationError(
            f"--out {out}: the name of a figure is needed, ending in {', '.join(FORMATS)}"
        )
    if record is not None and record.is_dir():
        raise sb.ConfigurationError(f"--json {record}: is a folder; name a file")
    for path in (out, record) if record is not None else (out,):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise sb.ConfigurationError(
                f"{path}: cannot be written ({error}); name another file"
            ) from error
