"""A measurement as it is watched, and the record that is kept of one."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import selective_backprop as sb
from selective_backprop.lab.bench.cases import cheap_scorers, gather
from selective_backprop.lab.bench.harness import (
    BASELINE,
    LEAST,
    Findings,
    Round,
    conclude,
    run_rounds,
)
from selective_backprop.lab.bench.workload import Workload, is_shape, made_up, make_workload
from selective_backprop.lab.data import datasets
from selective_backprop.lab.data.loader import make_loader
from selective_backprop.lab.nets.models import make_model
from selective_backprop.lab.recipe import Recipe
from selective_backprop.lab.records.files import forced_to_disk
from selective_backprop.lab.records.provenance import code_version, hardware, versions
from selective_backprop.lab.records.schema import utc_now

MADE_UP = 4096  # images of a shape that is described instead of named


def run_bench(
    console: Console,
    recipe: Recipe,
    *,
    rate: float,
    scorers: Sequence[str] | None,
    seconds: float,
    device: torch.device,
    root: Path | None,
) -> Findings:
    """Measure what scorers and strategies cost, and show how far it is.

    Args:
        console: where to.
        recipe: of the training.
        rate: share of the candidates that selection keeps, in (0, 1].
        scorers: names; None for those that are worth it.
        seconds: of wall time after which no further round begins.
        device: where to train.
        root: folder of the data set's files.

    Raises:
        ConfigurationError: if there is no such scorer, or the workload cannot be made.
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
        workload = make_workload(recipe, rate=rate, device=device, root=root)
        names = _chosen(scorers, workload)
        bars.update(task, description="starting scorers and strategies")
        cases = gather(workload, names)

        def tell(rounds: list[Round]) -> None:
            base, ours = (rounds[-1][name].seconds for name in (BASELINE, "selective-backprop"))
            text = f"round {len(rounds)}: selective-backprop {ours / max(base, 1e-9):.3f}"
            bars.update(task, description=text, total=max(LEAST, len(rounds) + 1))
            bars.update(task, completed=len(rounds))

        rounds = run_rounds(cases.arms, seconds=seconds, tell=tell)
    return conclude(workload, cases, rounds)


def run_advice(
    console: Console,
    recipe: Recipe,
    *,
    rate: float,
    budget: float,
    device: torch.device,
    root: Path | None,
    limit: int | None,
) -> sb.guide.Advice:
    """Ask for advice on a recipe's training within so many wall seconds, and show that it takes.

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
            torch.nn.CrossEntropyLoss(),
            optimizer=recipe.make_optimizer(model.parameters()),
            rate=rate,
            budget=budget,
            epochs=recipe.epochs,
            device=device,
        )


def write_record(path: Path, command: str, found: Mapping[str, Any]) -> None:
    """Write what was found as JSON, with what it means anything by.

    Raises:
        OSError: if the file cannot be written; it then is as it was.
    """
    record = {
        "command": command,
        "written": utc_now(),
        "code_version": code_version(),
        "versions": versions(),
        "hardware": hardware(),
        **_finite(found),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    with forced_to_disk(fresh) as file:
        file.write(f"{json.dumps(record, indent=1, allow_nan=False)}\n".encode())
    fresh.replace(path)


def _chosen(names: Sequence[str] | None, workload: Workload) -> tuple[str, ...]:
    side, device, precision = workload.data.image_size, workload.device, workload.precision
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


def _finite(value: Any) -> Any:
    """Return what JSON can hold: no number that is none."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
