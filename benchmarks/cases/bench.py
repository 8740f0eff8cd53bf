"""The measurements of `selective-backprop bench`, for several models on one device."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch

from benchmarks.case import Row, case, row_of
from selective_backprop_lab.bench.harness import measure
from selective_backprop_lab.bench.rounds import Median
from selective_backprop_lab.bench.workload import bench_recipe, make_workload
from selective_backprop_lab.recipe import Precision

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
) -> Iterator[Row]:
    """The cost of scoring and selecting, by model and precision; each is measured for `look` s."""
    for name, model in itertools.product(precisions, models):
        about = {"model": model, "precision": name, "data": data, "batch_size": batch_size}
        about["device"], half = device, name == "bf16"
        recipe = replace(bench_recipe(data), model=model, batch_size=batch_size)
        recipe = replace(recipe, precision=Precision(name))
        workload = make_workload(recipe, rate=1 / 3, device=torch.device(device))
        found = measure(workload, seconds=look, tell=lambda *_: None)
        # Exact scores are in the training's precision; scoring in bf16 has a limit.
        cheap = "forward" if half else "bf16"
        for name, cost in found["scorers"].items():
            limit = SCORING if name == cheap else None
            row = row_of(f"scoring: {name}", "fp32 forwards", Median(**cost["of_full"]), limit)
            remark = found["remarks"].get(name)
            yield about | row | {"overlap": cost["overlap"], "remark": remark}
        for name, cost in found["strategies"].items():
            limit = EPOCH if half and name.endswith(("-sb", "selective-backprop")) else None
            median, unit = Median(**cost["relative"]), "traditional epochs"
            row = row_of(f"an epoch: {name}", unit, median, limit)
            yield about | row | {"over_limit": cost["over_limit"]["median"]}
