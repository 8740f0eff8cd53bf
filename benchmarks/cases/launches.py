"""Counts: host waits and kernels of a batch on a CUDA device that is made up, calls on a CPU."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.calls import ARMS
from benchmarks.case import Once, Row, case, value
from benchmarks.stale import ROOT

# The most host waits and kernels of a batch, in the lab host waits of an epoch; None where kernels
# are not judged.
# Counting visits in a ledger takes two kernels more every 64 batches.
LIMITS: dict[str, tuple[int, int | None]] = {
    "plain loop": (0, 25),
    "traditional": (0, 25),
    "random_backprop": (0, 25),
    "auto": (0, 42),
    "infobatch": (0, 40),
    "easy_skip": (0, 40),
    "recorded_sb": (0, 38),
    "selective_backprop": (0, 89),  # 30 for its passes and their copies
    "selective_backprop, window at once": (0, 65),
    "stale_sb, scored": (0, 115),
    "stale_sb, scored, window at once": (0, 85),
    "kath18": (0, 65),
    "drop_zero": (1, 38),
    'selective_backprop, nonfinite="skip"': (1, 103),
    "SelectiveStep, random_backprop": (0, None),
    "lab, traditional": (0, 24),
    "lab, random-backprop": (0, 30),
    "lab, selective-backprop": (1, 92),
    "lab, stale-sb": (1, 55),
    "lab, auto": (1, 34),
}

# The most calls of the package's functions in a training step.
CALLS = {
    "traditional": 20,
    "random_backprop": 54,
    "selective_backprop": 150,
    "stale_sb, scored": 200,
    "stale_sb": 107,
    "recorded_sb": 108,
    "infobatch": 84,
    "auto": 81,
    "SelectiveStep": 67,
    "SelectiveStep, random_backprop": 41,
}


@case("src/selective_backprop")
def calls() -> Iterator[Once]:
    """Calls of the package's functions in a training step, counted, so the same everywhere."""
    for name, count in ARMS.items():
        most = CALLS[name]
        yield Once(
            {"strategy": name},
            lambda count=count, most=most: [value("calls", count(), "a step", most)],
        )


@case("src/selective_backprop")
def launches() -> Iterator[Once]:
    """Host waits and kernels of a steady batch by strategy, counted, so the same everywhere."""

    def find() -> Iterator[Row]:
        found = subprocess.run(
            [sys.executable, "-m", "benchmarks.launches"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": "src:.:tests/fixtures"},
            check=True,
            stdout=subprocess.PIPE,
        )
        for name, (waits, kernels) in json.loads(found.stdout).items():
            most_waits, most_kernels = LIMITS[name]
            of = "an epoch" if name.startswith("lab") else "a batch"
            yield value("host waits", waits, of, most_waits, strategy=name)
            yield value("kernels", kernels, "a batch", most_kernels, strategy=name)

    yield Once({}, find)
