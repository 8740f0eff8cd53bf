"""Time scoring and selecting with one model on one device, and write a record.

benchmarks/gpu.py runs it once for each model and precision. It needs the lab's numbers alone, and
neither its command line nor its pages, so that it runs where only some packages are installed.
"""

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from selective_backprop.lab.bench.bench import run_bench, write_record

from selective_backprop.lab.bench.tables import show_findings
from selective_backprop.lab.bench.workload import bench_recipe
from selective_backprop.lab.recipe import Precision

RATE = 1 / 3


def main() -> None:
    """Measure, print the tables, write the record."""
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
    console = Console(width=120)
    findings = run_bench(
        console,
        replace(
            recipe,
            model=options.model,
            batch_size=options.batch_size,
            precision=options.precision,
        ),
        rate=RATE,
        scorers=None,
        seconds=options.seconds,
        device=options.device,
        root=None,
    )
    command = shlex.join(["python", "benchmarks/gpu_part.py", *sys.argv[1:]])
    write_record(options.json, command, findings.as_dict())
    for part in show_findings(findings):
        console.print(part)


if __name__ == "__main__":
    main()
