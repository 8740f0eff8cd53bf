"""What a run has cost so far: passes, updates, seconds and memory."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

import selective_backprop as sb

PHASES = ("load", "score", "select", "forward", "backward", "step", "other")


@dataclass(frozen=True)
class Price:
    """What scoring costs per example, in forward passes of the model."""

    score: float = 1.0  # of scoring an example
    learn: float = 0.0  # of what a scorer learns from an example that is trained on


def cost_of(scored: float, trained: float, checked: float = 0.0, price: Price = Price()) -> float:
    """Return the cost of scored and trained examples; training on one example costs 1."""
    # Counted in forward passes. A backward pass costs about two, so training costs three.
    return (price.score * scored + checked + (3 + price.learn) * trained) / 3


class Meter:
    """Count what one run costs, without evaluations.

    Args:
        examples: number of training examples, which one pass of traditional training sees.
        device: the device that the run trains on.

    Attributes:
        stopwatch: times each phase.
        updates: number of optimiser steps.
        trained: number of examples trained on, counted each time.
        overhead: wall seconds of setting up and of evaluations, which `seconds` leaves out.
        prepared: cost before training, in passes of traditional training.
        price: what scoring costs.
        peak_memory: bytes of the GPU used by this run, or of the whole process on a CPU. Runs that
            take turns in one process report the same peak. 0 on Windows, where it is unknown.
    """

    def __init__(self, examples: int, device: torch.device) -> None:
        self._examples = examples
        self._device = device
        self._cpu = 0.0
        self._cpu_since: float | None = None
        self.peak_memory = 0
        self.stopwatch = sb.Stopwatch(device)
        # Reading a GPU's own seconds would wait for it.
        self._host = self.stopwatch if device.type == "cpu" else sb.Stopwatch()
        self.updates = 0
        self.trained = 0
        self.overhead = 0.0
        self.prepared = 0.0
        self.price = Price()

    def start(self) -> None:
        """Start or continue counting seconds."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        self.stopwatch.start()
        self._host.start()
        self._cpu_since = time.process_time()

    def stop(self) -> None:
        """Stop counting seconds until `start`."""
        self.stopwatch.stop()
        self._host.stop()
        if self._cpu_since is not None:
            self._cpu += time.process_time() - self._cpu_since
            self._cpu_since = None
        self.peak_memory = max(self.peak_memory, _peak_memory(self._device))

    @contextmanager
    def paused(self) -> Generator[None]:
        """Count no seconds in the body."""
        runs = self._cpu_since is not None
        if runs:
            self.stop()
        yield
        if runs:
            self.start()

    @contextmanager
    def as_overhead(self) -> Generator[None]:
        """Count the body's wall seconds as overhead."""
        since = time.perf_counter()
        yield
        self.overhead += time.perf_counter() - since

    def state_dict(self) -> dict[str, Any]:
        """Return what was counted so far."""
        return {
            "phases": self.stopwatch.seconds,
            "cpu": self.cpu_seconds,
            "peak": self.peak_memory,
            "updates": self.updates,
            "trained": self.trained,
            "overhead": self.overhead,
            "prepared": self.prepared,
            "price": asdict(self.price),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self.stopwatch.go_on(state["phases"])
        self._host.go_on(state["phases"])
        self._cpu, self.peak_memory = state["cpu"], state["peak"]
        self.updates, self.trained = state["updates"], state["trained"]
        self.overhead = state["overhead"]
        self.prepared, self.price = state["prepared"], Price(**state["price"])

    def updated(self, rows: int) -> None:
        """Count one optimiser step on a batch of this many rows."""
        self.updates += 1
        self.trained += rows

    def cost(self, scored: int, checked: int = 0) -> float:
        """Return the cost in passes of traditional training; scoring costs a third of training.

        Examples that were `checked`, which means scored a second time, cost a whole forward pass.
        Preparation, and scorers that are not the model itself, count with their own cost.
        """
        return self.prepared + cost_of(scored, self.trained, checked, self.price) / self._examples

    @property
    def seconds(self) -> float:
        """Wall seconds so far."""
        return self.stopwatch.total

    @property
    def host_seconds(self) -> float:
        """Wall seconds so far by the host's clock, read without waiting for a GPU."""
        return self._host.total

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of this process so far, summed over threads."""
        running = 0.0 if self._cpu_since is None else time.process_time() - self._cpu_since
        return self._cpu + running

    @property
    def phases(self) -> dict[str, float]:
        """Wall seconds of each phase; they add up to `seconds`."""
        return dict.fromkeys(PHASES, 0.0) | self.stopwatch.seconds


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return 0
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB
