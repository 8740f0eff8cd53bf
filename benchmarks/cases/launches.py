"""Counts: host waits and kernels of a batch on a CUDA device that is made up, calls on a CPU.

Where steps are small, calls of the package's functions are most of the time that selection takes.
Unlike time, their number is the same on any machine. Comprehensions do not count, since newer
versions of Python call none, and a generator counts once, not each time that it continues.
"""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import selective_backprop as sb
from benchmarks.case import ROOT, Row, case, value
from benchmarks.tiny import RATE, examples, in_step, through_loader

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


EXAMPLES, EPOCHS = 480, 3  # in the last epoch `stale` selects by remembered scores
HOME = str(Path(sb.__file__).parent)


@contextmanager
def counting() -> Iterator[SimpleNamespace]:
    """Count the calls inside, as `calls` of what is yielded."""
    counted = SimpleNamespace(calls=0)
    starts: dict[Any, int] = {}  # of the package's functions; -1 for others

    def note(frame: Any, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in starts:
            made = code.co_name.startswith("<") and code.co_name != "<lambda>"
            ours = code.co_filename.startswith(HOME) and not made
            starts[code] = frame.f_lasti if ours else -1
        start = starts[code]
        goes_on = code.co_flags & inspect.CO_GENERATOR and frame.f_lasti != start
        counted.calls += start >= 0 and not goes_on

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield counted
    finally:
        sys.setprofile(before)


def per_step(steps: Iterator[None]) -> float:
    with counting() as counted:
        taken = sum(1 for _ in steps)
    return counted.calls / taken


def counted(strategy: sb.Strategy, epoch: int = -1) -> float:
    return per_step(through_loader(examples(EXAMPLES), strategy, EPOCHS, epoch=epoch))


def in_steps(strategy: sb.Strategy) -> float:
    batches = list(examples(EXAMPLES))
    return per_step(in_step(strategy, [batches[0], *batches]))


ARMS: dict[str, Callable[[], float]] = {
    "traditional": lambda: counted(sb.traditional()),
    "random_backprop": lambda: counted(sb.random_backprop(RATE)),
    "selective_backprop": lambda: counted(sb.selective_backprop(RATE)),
    "stale_sb, scored": lambda: counted(sb.stale_sb(RATE), epoch=1),
    "stale_sb": lambda: counted(sb.stale_sb(RATE)),
    "recorded_sb": lambda: counted(sb.recorded_sb(RATE)),
    "infobatch": lambda: counted(sb.infobatch()),
    "auto": lambda: counted(sb.auto()),
    "SelectiveStep": lambda: in_steps(sb.selective_backprop(RATE, warmup_epochs=0)),
    "SelectiveStep, random_backprop": lambda: in_steps(sb.random_backprop(RATE)),
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
