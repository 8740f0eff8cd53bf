"""Counts: host waits and kernels of a batch on a CUDA device that is made up, calls on a CPU."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.calls import ARMS
from benchmarks.case import Row, case, value
from benchmarks.stale import ROOT

# The most host waits and kernels of a batch; of the lab, host waits of an epoch. With None, kernels
# are not judged. Counting visits in a ledger takes two kernels more every 64 batches.
LIMITS: dict[str, tuple[int, int | None]] = {
    "plain loop": (0, 25),
    "traditional": (0, 25),
    "random_backprop": (0, 25),
    "auto": (0, 42),
    "infobatch": (0, 40),
    "easy_skip": (0, 40),
    "recorded_sb": (0, 38),
    "selective_backprop": (0, 107),  # 30 for its passes and their copies
    "kath18": (0, None),
    "drop_zero": (1, None),
    'selective_backprop, nonfinite="skip"': (1, None),
    "SelectiveStep, random_backprop": (0, None),
    "lab, traditional": (0, 24),
    "lab, random-backprop": (0, 30),
    "lab, selective-backprop": (1, 94),
    "lab, stale-sb": (1, 56),
    "lab, auto": (1, 34),
}

# The most calls of the package's functions in a training step.
CALLS = {
    "traditional": 20,
    "random_backprop": 57,
    "selective_backprop": 153,
    "stale_sb, scored": 203,
    "stale_sb": 109,
    "recorded_sb": 109,
    "infobatch": 84,
    "auto": 81,
    "SelectiveStep": 70,
    "SelectiveStep, random_backprop": 44,
}


@case("src/selective_backprop")
def calls() -> Iterator[Row]:
    """Calls of the package's functions in a training step: the same on every machine."""
    for name, count in ARMS.items():
        yield value("calls", count(), "a step", CALLS[name], strategy=name)


@case("src/selective_backprop")
def launches() -> Iterator[Row]:
    """Host waits and kernels of a steady batch by strategy: the same on every machine."""
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
