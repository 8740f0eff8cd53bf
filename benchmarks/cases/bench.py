"""What scoring and selecting cost with a model on one device: `scripts/gpu` runs it."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch

from benchmarks.case import Once, Row, case, row_of
from selective_backprop_lab.bench.harness import measure
from selective_backprop_lab.bench.rounds import Median
from selective_backprop_lab.bench.workload import bench_recipe, make_workload
from selective_backprop_lab.recipe import Precision, Recipe

SCORING, EPOCH = 0.3, 0.4  # the most that scoring and a selective epoch may cost in bf16
CORE = ("src/selective_backprop/_loader", "src/selective_backprop/scorers")


@case("src/selective_backprop_lab/bench", "src/selective_backprop/experimental", *CORE)
def bench(
    *,
    models: tuple[str, ...] = ("resnet18", "vit_small"),
    precisions: tuple[str, ...] = ("bf16", "fp32"),
    data: str = "3x32x32",
    batch_size: int = 256,
    device: str = "cuda",
    look: float = 30.0,
) -> Iterator[Once]:
    """What scoring and selecting cost with each model in each precision, in so many seconds."""
    for precision, model in itertools.product(precisions, models):
        about = {"model": model, "precision": precision, "data": data, "batch_size": batch_size}

        def find(precision: str = precision, model: str = model) -> list[Row]:
            recipe = replace(bench_recipe(data), model=model, batch_size=batch_size)
            return rows_of(replace(recipe, precision=Precision(precision)), device, look)

        yield Once(about | {"device": device}, find)


def rows_of(recipe: Recipe, device: str, look: float) -> list[Row]:
    """Return what was found, with a verdict on what is demanded in bf16."""
    workload = make_workload(recipe, rate=1 / 3, device=torch.device(device))
    found = measure(workload, seconds=look, tell=lambda *_: None)
    # Exact scores are in the training's precision, bf16 at times.
    half = recipe.precision is Precision.BF16
    cheap, rows = "forward" if half else "bf16", []
    for name, cost in found["scorers"].items():
        limit = SCORING if name == cheap else None
        row = row_of(f"scoring: {name}", "fp32 forwards", Median(**cost["of_full"]), limit)
        rows.append(row | {"overlap": cost["overlap"], "remark": found["remarks"].get(name)})
    for name, cost in found["strategies"].items():
        limit = EPOCH if half and name.endswith(("-sb", "selective-backprop")) else None
        row = row_of(f"an epoch: {name}", "traditional epochs", Median(**cost["relative"]), limit)
        rows.append(row | {"over_limit": cost["over_limit"]["median"]})
    return rows
