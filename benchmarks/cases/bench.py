"""What scoring and selecting cost with one model on one device, as the lab's `bench` has it.

It needs the lab's numbers alone, and neither its command line nor its pages, so that it runs where
only some packages are installed.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from benchmarks.case import Once, Row, case, row_of
from selective_backprop_lab.bench.harness import measure
from selective_backprop_lab.bench.workload import bench_recipe, make_workload
from selective_backprop_lab.recipe import Precision

SCORING, EPOCH = 0.3, 0.4  # the most that scoring and a selective epoch may cost in bf16
CORE = ("src/selective_backprop/_loader", "src/selective_backprop/scorers")


@case("src/selective_backprop_lab/bench", "src/selective_backprop/experimental", *CORE)
def bench(
    *,
    model: str = "resnet18",
    precision: str = "fp32",
    data: str = "3x32x32",
    batch_size: int = 256,
    device: str = "cuda",
    look: float = 30.0,
) -> Iterator[Once]:
    """What scoring and selecting cost with one model on one device, within so many seconds."""
    about = {"model": model, "precision": precision, "data": data, "batch_size": batch_size}

    def find() -> list[Row]:
        recipe = replace(
            bench_recipe(data),
            model=model,
            batch_size=batch_size,
            precision=Precision(precision),
        )
        workload = make_workload(recipe, rate=1 / 3, device=torch.device(device))
        found = measure(workload, list(workload.scorers), seconds=look, tell=lambda *_: None)
        # Exact scores are in the training's precision, bf16 at times.
        cheap = "forward" if precision == "bf16" else "bf16"
        scoring = [
            row_of(
                f"scoring: {name}", "fp32 forwards", cost.of_full, _at_most(SCORING, name == cheap)
            )
            | {"overlap": cost.overlap, "remark": found.remarks.get(name)}
            for name, cost in found.scorers.items()
        ]
        epochs = []
        for name, cost in found.strategies.items():
            selective = name.endswith(("-sb", "selective-backprop")) and precision == "bf16"
            row = row_of(
                f"an epoch: {name}", "traditional epochs", cost.relative, _at_most(EPOCH, selective)
            )
            epochs.append(row | {"over_limit": cost.over_limit.median})
        return scoring + epochs

    yield Once(about | {"device": device}, find)


def _at_most(limit: float, demanded: bool) -> float | None:
    return limit if demanded else None
