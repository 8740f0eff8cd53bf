"""Measure what the examples show, at several learning rates and seeds.

    python benchmarks/examples.py --out records/bench/examples.json

Each training is one of `examples/plain.py`, `selective.py` or `no_gain.py` in that folder: plain,
selective, and plain for as few epochs as cost the same. CPU seconds are of the loop, on one thread.
"""

import argparse
import runpy
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from recording import write_record
from rich.console import Console

import selective_backprop as sb

EXAMPLES = Path(__file__).parents[1] / "examples"
EPOCHS = 16
SHORTENED = {"a fifth of the labels random": 8, "all labels right": 4}  # epochs
RATES = {"a fifth of the labels random": 0.003, "all labels right": 0.03}  # as the examples have
SOURCES = {
    name: (EXAMPLES / f"{name}.py").read_text(encoding="utf-8") for name in ("plain", "selective")
}
train_on_right_labels = runpy.run_path(str(EXAMPLES / "no_gain.py"))["train"]


def run(name: str, epochs: int, seed: int, lr: float) -> tuple[float, float, float]:
    """Run one of the linked pair, and return the passes, the seconds and the error."""
    source = SOURCES[name]
    for said, meant in (("manual_seed(0)", f"manual_seed({seed})"), ("lr=0.003", f"lr={lr}")):
        assert source.count(said) == 1, f"{name}.py should say {said} once"
        source = source.replace(said, meant)
    found: dict[str, Any] = {"print": lambda _: None}
    with mock.patch.object(sys, "argv", [name, str(epochs)]):
        exec(compile(source, name, "exec"), found)
    return found["trained"] / 1200, found["seconds"], found["error"]


def trainings(seed: int, lr: float) -> list[dict[str, Any]]:
    """Train each arm on both data, and return what came of it."""
    found = []
    for data, fewer in SHORTENED.items():
        for arm, epochs in (("plain", EPOCHS), ("selective", EPOCHS), ("plain, shortened", fewer)):
            if data == "all labels right":
                strategy = sb.auto() if arm == "selective" else None
                ended = train_on_right_labels(epochs, strategy, seed, lr)
            else:
                ended = run(arm.partition(",")[0], epochs, seed, lr)
            about = {"data": data, "arm": arm, "epochs": epochs, "lr": lr, "seed": seed}
            found.append(about | dict(zip(("passes", "cpu_seconds", "error"), ended, strict=True)))
            Console(width=100, stderr=True).print(found[-1])
    return found


def main() -> int:
    """Measure, print, write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lrs", type=float, nargs="+", default=[0.001, 0.003, 0.01, 0.03])
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with mock.patch.object(time, "perf_counter", time.process_time):
        found = [
            each for s in range(options.seeds) for lr in options.lrs for each in trainings(s, lr)
        ]
    if options.out:
        write_record(
            options.out,
            rates=RATES,
            trainings=found,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
