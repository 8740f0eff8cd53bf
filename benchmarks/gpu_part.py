"""Time scoring and selecting with one model on one device, and write a record.

benchmarks/gpu.py runs it once for each model and precision. It needs the lab's numbers alone, and
neither its command line nor its pages, so that it runs where only some packages are installed.
"""

import argparse
from dataclasses import asdict, replace
from pathlib import Path

import torch
from recording import write_record

from selective_backprop_lab.bench.harness import measure
from selective_backprop_lab.bench.workload import bench_recipe, make_workload
from selective_backprop_lab.recipe import Precision
from selective_backprop_lab.records.schema import utc_now

RATE = 1 / 3


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="of the lab, or package.module:factory")
    parser.add_argument("--precision", type=Precision, default=Precision.FP32, help="of training")
    parser.add_argument("--data", default="3x32x32", help="the images' shape, or a data set")
    parser.add_argument("--batch-size", type=int, default=256, help="of training")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"), help="where")
    parser.add_argument("--seconds", type=float, default=30.0, help="of rounds")
    parser.add_argument("--json", type=Path, required=True, help="the record")
    options = parser.parse_args()
    if options.device.type == "cpu":
        torch.set_num_threads(1)
    recipe = bench_recipe(options.data)
    recipe = replace(
        recipe, model=options.model, batch_size=options.batch_size, precision=options.precision
    )
    workload = make_workload(recipe, rate=RATE, device=options.device)
    findings = measure(
        workload,
        list(workload.scorers),
        seconds=options.seconds,
        tell=lambda rounds, spent: print(f"round {rounds}, {spent:.0f} s", flush=True),
    )
    write_record(
        options.json,
        written=utc_now(),
        **asdict(findings),
    )


if __name__ == "__main__":
    main()
