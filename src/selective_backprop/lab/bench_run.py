"""A measurement as it is watched: progress, then tables, a figure and a record."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import selective_backprop as sb
from selective_backprop.lab.bench_figure import draw_bench
from selective_backprop.lab.bench_scorers import cheap_scorers, default_scorers
from selective_backprop.lab.bench_tables import describe, remarks, scorer_table, strategy_table
from selective_backprop.lab.benching import BASELINE, LEAST, Findings, Round, conclude, run_rounds
from selective_backprop.lab.contestants import gather
from selective_backprop.lab.precision import Precision
from selective_backprop.lab.recipes import Recipe
from selective_backprop.lab.specimen import Specimen, make_specimen

CPU_CLOCK = "CPU seconds of the process"
GPU_CLOCK = "wall seconds"


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
    """Print the tables, draw the figure, and write the record if one is asked for.

    Raises:
        ConfigurationError: if a file cannot be written, or the figure's format is unknown.
    """
    for line in describe(findings):
        console.print(line)
    console.print(scorer_table(findings))
    for line in remarks(findings):
        console.print(line)
    console.print(strategy_table(findings))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draw_bench(findings, out)
        if record is not None:
            record.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(findings.record(command), indent=1)
            record.write_text(text + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        raise sb.ConfigurationError(
            f"--out {out}, --json {record}: cannot be written ({error}); name other files, the "
            "figure's ending in .png, .svg or .pdf"
        ) from error
    written = [out] if record is None else [out, record]
    console.print(f"Written: {', '.join(str(path) for path in written)}.", soft_wrap=True)


def _chosen(names: Sequence[str] | None, specimen: Specimen) -> tuple[str, ...]:
    side, device, precision = specimen.data.image_size, specimen.device, specimen.precision
    if names is None:
        return default_scorers(side, device, precision)
    known = cheap_scorers(side, device, precision)
    for name in names:
        if name not in known:
            raise sb.ConfigurationError(
                f"--scorers {name}: for images of {side} pixels and training in {precision} on "
                f"{device} there are {', '.join(known)}"
            )
    return tuple(dict.fromkeys(names))
