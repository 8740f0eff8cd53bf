"""What the examples show, at several learning rates and seeds."""

import itertools
import runpy
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import selective_backprop as sb
from benchmarks.case import Once, Row, case

FOLDER = Path(__file__).parents[2] / "examples"
EPOCHS = 16
NOISY, RIGHT = "a fifth of the labels random", "all labels right"
SMOOTHED = "smoothed"
SHORTENED = {NOISY: 8, RIGHT: 4}  # epochs of plain training that cost as much
CORE = ("src/selective_backprop/_loader", "src/selective_backprop/strategies")


@case(*CORE, "examples/plain.py", "examples/selective.py", "examples/no_gain.py")
def trainings(
    *, seeds: int = 5, lrs: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
) -> Iterator[Once]:
    """plain.py, selective.py, no_gain.py, and plain training for as few epochs as cost as much.

    Where labels are wrong, both are also trained with the loss of the other.
    """
    usual = ("plain", "selective", "plain, shortened")
    arms = {NOISY: (*usual, f"plain, shortened, {SMOOTHED}", f"selective, not {SMOOTHED}")}
    jobs = [(data, arm) for data in SHORTENED for arm in arms.get(data, usual)]
    for seed, lr, (data, arm) in itertools.product(range(seeds), lrs, jobs):
        epochs = SHORTENED[data] if "shortened" in arm else EPOCHS
        about = {"data": data, "arm": arm, "epochs": epochs, "lr": lr, "seed": seed}
        yield Once(about, lambda about=about: [ended(**about)])


def ended(data: str, arm: str, epochs: int, lr: float, seed: int) -> Row:
    """Train once; return the passes, the CPU seconds of the loop and the error."""
    with mock.patch.object(time, "perf_counter", time.process_time):
        if data == RIGHT:
            strategy = sb.auto() if arm == "selective" else None
            passes, seconds, error = example("no_gain")["train"](epochs, strategy, seed, lr)
        else:
            found = _linked(arm, epochs, seed, lr)
            passes, seconds, error = found["trained"] / 1200, found["seconds"], found["error"]
    return {"passes": passes, "cpu_seconds": seconds, "error": error}


@cache
def example(name: str) -> dict[str, Any]:
    """Return the names of an example."""
    return runpy.run_path(str(FOLDER / f"{name}.py"))


def _linked(arm: str, epochs: int, seed: int, lr: float) -> dict[str, Any]:
    """Run one of the linked pair with another seed, rate and maybe loss, and return its names."""
    name = arm.partition(",")[0]
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    changes = {"manual_seed(0)": f"manual_seed({seed})", "lr=0.003": f"lr={lr}"}
    if SMOOTHED in arm:
        losses = ["CrossEntropyLoss()", "CrossEntropyLoss(label_smoothing=0.3)"]
        said, meant = losses if name == "plain" else reversed(losses)
        changes[said] = meant
    for said, meant in changes.items():
        assert source.count(said) == 1, f"{name}.py should say {said} once"
        source = source.replace(said, meant)
    found: dict[str, Any] = {"print": lambda _: None}
    with mock.patch.object(sys, "argv", [name, str(epochs)]):
        exec(compile(source, name, "exec"), found)
    return found
