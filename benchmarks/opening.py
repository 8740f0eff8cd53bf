"""Measure what opening an epoch of `auto` takes in a large data set: CPU seconds and memory.

    python benchmarks/opening.py --out records/bench/opening.json

Every example has been trained on twice. A share of the labels is wrong: these examples' losses are
high, both times, so that they are given up. Classes are as frequent as each other, or one of two is
that of 98 in a hundred. One CPU thread; Linux alone tells the peak of memory.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from recording import write_record
from rich.console import Console
from size import Indices, forget_peak, peak, resident
from torch.utils.data import DataLoader

import selective_backprop as sb

BATCH, CLASSES, AT_ONCE = 128, 10, 10**6
CASES = ((0.0, 1 / CLASSES), (0.2, 1 / CLASSES), (0.0, 0.98))  # wrong labels, most frequent class


def opening(examples: int, wrong: float, frequent: float, rounds: int) -> dict[str, Any]:
    """Return what the first batch of an epoch takes."""
    loader = sb.SelectiveLoader(
        DataLoader(Indices(examples), BATCH),
        None,
        None,
        sb.auto(),
        with_selection=True,
        generator=torch.Generator().manual_seed(0),
        quiet=True,
    )
    ledger = loader.ledger
    assert ledger is not None
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        for start in range(0, examples, AT_ONCE):
            rows = torch.arange(start, min(start + AT_ONCE, examples))
            losses = torch.empty(len(rows)).exponential_(2.0, generator=generator)
            losses[rows % 100 < 100 * wrong] += 5.0
            ledger.hand_out(rows)
            selection = sb.Selection(rows, torch.ones(len(rows)))
            even = frequent * CLASSES == 1
            targets = rows % CLASSES if even else (rows % 100 >= 100 * frequent).long()
            loader.record(selection, losses, targets=targets)
    seconds, peaks = [], []
    for number in range(1, rounds + 1):
        loader.set_epoch(number)
        before = resident()
        forget_peak()
        begun = time.process_time()
        next(iter(loader))
        seconds.append(time.process_time() - begun)
        peaks.append((peak() - before) / examples)
    return {
        "wrong": wrong,
        "frequent": frequent,
        "cpu_seconds": statistics.median(seconds),
        "fewest_cpu_seconds": min(seconds),
        "most_cpu_seconds": max(seconds),
        "peak_bytes_per_example": max(peaks),
    }


def main() -> int:
    """Measure, print, write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=10**7)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [opening(options.examples, *case, options.rounds) for case in CASES]
    Console(width=100).print(found)
    if options.out:
        write_record(
            options.out,
            examples=options.examples,
            rounds=options.rounds,
            openings=found,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
