"""Measure what a toy GRPO costs with and without the rows of groups of equal rewards.

    python benchmarks/zero_rows.py --out records/bench/zero-rows.json

Of each seed, `examples/grpo.py` trains twice: on all rows, and on those whose gradient is not zero.
CPU seconds are of the whole loop, answers and rewards included. One CPU thread.
"""

import argparse
import json
import runpy
import sys
from pathlib import Path

import torch
from rich.console import Console

import selective_backprop as sb
from selective_backprop.lab.records.provenance import provenance

EXAMPLE = Path(__file__).parents[1] / "examples" / "grpo.py"


def main() -> int:
    """Measure, print, write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    train, found = runpy.run_path(str(EXAMPLE))["train"], []
    for seed in range(options.seeds):
        _, plain, all_rows, whole = train(None, options.steps, seed)
        _, match, rows, less = train(sb.NonzeroRows(), options.steps, seed)
        found.append(
            {
                "seed": seed,
                "reward": sum(match[-10:]) / 10,
                "furthest": max(abs(a - b) for a, b in zip(plain, match, strict=True)),
                "rows": [all_rows, rows],
                "cpu_seconds": [whole, less],
            }
        )
        Console(width=100).print(found[-1])
    if options.out:
        record = {
            "command": "benchmarks/zero_rows.py " + " ".join(sys.argv[1:]),
            "steps": options.steps,
            **provenance(),
            "trainings": found,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
