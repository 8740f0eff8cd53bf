"""A measurement as it is watched: progress, then tables, a figure and a record."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import selective_backprop as sb
from selective_backprop.lab.bench_figure import draw_bench
from selective_backprop.lab.bench_scorers import cheap_scorers
from selective_backprop.lab.bench_tables import describe, remarks, scorer_table, strategy_table
from selective_backprop.lab.benching import BASELINE, LEAST, Findings, Round, conclude, run_rounds
from selective_backprop.lab.contestants import gather
from selective_backprop.lab.precision import Precision
from selective_backprop.lab.recipes import Recipe
from selective_backprop.lab.specimen import Specimen, make_specimen

CPU_CLOCK = "CPU seconds of the process"
GPU_CLOCK = "wall seconds"
FORMATS = (".png", ".svg", ".pdf")


def check_files(out: Path, record: Path | None) -> None:
    """Refuse files that could not be written once all is measured; make their folders.

    Raises:
        ConfigurationError: if a path is a folder or cannot be made, or the figure's format is
            unknown.
    """
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


def run_bench(
    console: Console,
    recipe: Recipe,
    *,
    rate: float,
    scorers: Sequence[str] | None,
    seconds: float,
    device: torch.device,
    root: Path | None,
    precision: Precision = Precision.FP32,
) -> Findings:
    """Measure, and show how far it is.

    Args:
        console: where to.
        recipe: of the training.
        rate: share of the candidates that selection keeps, in (0, 1].
        scorers: names; None for those that are worth it.
        seconds: of wall time after which no further round begins.
        device: where to.
        root: folder of the data set's files.
        precision: of every training step, whatever the strategy.

    Raises:
        ConfigurationError: if there is no such scorer, or the specimen cannot be made.
    """
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with bars:
        task = bars.add_task("making and training a model", total=None)
        specimen = make_specimen(recipe, rate=rate, device=device, root=root, precision=precision)
        names = _chosen(scorers, specimen)
        bars.update(task, description="starting scorers and strategies")
        found = gather(specimen, names)

        def tell(rounds: list[Round]) -> None:
            base, ours = (rounds[-1][name].seconds for name in (BASELINE, "selective-backprop"))
            text = f"round {len(rounds)}: selective-backprop {ours / max(base, 1e-9):.3f}"
            bars.update(task, description=text, total=max(LEAST, len(rounds) + 1))
            bars.update(task, completed=len(rounds))

        rounds = run_rounds(found.arms, seconds=seconds, tell=tell)
    clock = GPU_CLOCK if device.type == "cuda" else CPU_CLOCK
    return conclude(specimen, found, rounds, clock=clock)


def show_bench(
    console: Console, findings: Findings, out: Path, record: Path | None, *, command: str
) -> None:
    """Print the tables, write the record if one is asked for, and draw the figure.

    Raises:
        ConfigurationError: if a file cannot be written.
    """
    for line in describe(findings):
        console.print(line)
    console.print(scorer_table(findings))
    for line in remarks(findings):
        console.print(line)
    console.print(strategy_table(findings))
    try:
        if record is not None:
            text = json.dumps(findings.record(command), indent=1)
            record.write_text(text + "\n", encoding="utf-8")
        draw_bench(findings, out)
    except OSError as error:
        raise sb.ConfigurationError(
            f"--out {out}, --json {record}: cannot be written ({error}); name other files"
        ) from error
    written = [out] if record is None else [out, record]
    console.print(f"Written: {', '.join(str(path) for path in written)}.", soft_wrap=True)


def _chosen(names: Sequence[str] | None, specimen: Specimen) -> tuple[str, ...]:
    side, device, precision = specimen.data.image_size, specimen.device, specimen.precision
    known = cheap_scorers(side, device, precision)
    if names is None:
        return tuple(known)
    for name in names:
        if name not in known:
            raise sb.ConfigurationError(
                f"--scorers {name}: for images of {side} pixels and training in {precision} on "
                f"{device} there are {', '.join(known)}"
            )
    return tuple(dict.fromkeys(names))
