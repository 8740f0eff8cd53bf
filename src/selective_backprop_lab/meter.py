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
_COUNTS = ("peak_memory", "updates", "trained", "overhead", "prepared")


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
    """Count what a run on so many training examples costs, without evaluations."""

    def __init__(self, examples: int, device: torch.device) -> None:
        self._examples, self._device = examples, device
        self._cpu, self._cpu_since = 0.0, None
        # Bytes of this run's GPU, or of the whole process on a CPU; 0 on Windows (unknown).
        self.peak_memory = 0
        self.stopwatch = sb.Stopwatch(device)  # times each phase
        # By the host's clock, because reading a GPU's own seconds would wait for it.
        self.host = self.stopwatch if device.type == "cpu" else sb.Stopwatch()
        self.updates = 0  # optimiser steps
        self.trained = 0  # examples trained on, counted each time
        self.overhead = 0.0  # wall seconds of setting up and of evaluations
        self.prepared = 0.0  # cost before training, in passes of traditional training
        self.price = Price()

    def start(self) -> None:
        """Start or continue counting seconds."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        self.stopwatch.start()
        self.host.start()
        self._cpu_since = time.process_time()

    def stop(self) -> None:
        """Stop counting seconds until `start`."""
        self.stopwatch.stop()
        self.host.stop()
        if self._cpu_since is not None:
            self._cpu += time.process_time() - self._cpu_since
            self._cpu_since = None
        self.peak_memory = max(self.peak_memory, _peak_memory(self._device))

    @contextmanager
    def paused(self) -> Generator[None]:
        """Count no seconds in the body."""
        if self._cpu_since is None:
            yield
            return
        self.stop()
        yield
        self.start()

    @contextmanager
    def as_overhead(self) -> Generator[None]:
        """Count the body's wall seconds as overhead."""
        since = time.perf_counter()
        yield
        self.overhead += time.perf_counter() - since

    def state_dict(self) -> dict[str, Any]:
        """Return what was counted so far."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        times = {"phases": self.stopwatch.seconds, "cpu": self.cpu_seconds}
        return {**counts, **times, "price": asdict(self.price)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self.stopwatch.go_on(state["phases"])
        self.host.go_on(state["phases"])
        self._cpu, self.price = state["cpu"], Price(**state["price"])
        for name in _COUNTS:
            setattr(self, name, state[name])

    def cost(self, scored: int, checked: int = 0) -> float:
        """Return the cost in passes; each checked example costs a forward pass more."""
        return self.prepared + cost_of(scored, self.trained, checked, self.price) / self._examples

    @property
    def seconds(self) -> float:
        """Wall seconds so far."""
        return self.stopwatch.total

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
