"""Measure the seconds that each phase of training takes; the phases add up to the whole time."""

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

_HELD = 4096  # phases of a CUDA device that wait to be added up


class Stopwatch:
    """Measure the seconds that each phase of training takes, between `start` and `stop`.

    `SelectiveLoader(stopwatch=…)` times its own phases; measure those of your loop with `phase`.
    Time outside all phases counts for `"other"`. A phase inside another one pauses the outer one.
    On a CUDA device, phases begin and end where the device gets to them. Only reading waits for it.

    Args:
        device: the device that trains. On a CUDA device, the work of its current stream is timed.
        clock: a function that returns seconds, for a CPU. By default, wall-clock time is measured;
            `time.process_time` measures this process's CPU time.
    """

    def __init__(
        self, device: torch.device | None = None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._cuda = device if device is not None and device.type == "cuda" else None
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._phase: str | None = None
        self._since: Any = 0.0  # a time of the clock, or an event
        # Phases that the device may not have ended yet, between their two times.
        self._open: deque[tuple[str, Any, Any]] = deque()

    def start(self) -> None:
        """Start. Time counts for `"other"` until a phase begins. If already running, do nothing."""
        if self._phase is None:
            self._since = self._now()
            self._phase = "other"

    def stop(self) -> None:
        """Stop counting, for example before an evaluation; `start` continues."""
        self._charge()
        self._phase = None

    def go_on(self, seconds: Mapping[str, float]) -> None:
        """Continue from the seconds per phase of an earlier run, replacing those counted so far."""
        self._seconds = dict(seconds)
        self._open.clear()

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Return a context manager that adds the time of its body to the phase `name`.

        Before `start` and after `stop`, it counts nothing.
        """
        outer = self._phase
        if outer is not None:
            self._charge()
            self._phase = name
        try:
            yield
        finally:
            if outer is not None and self._phase is not None:  # None if the body stopped the watch
                self._charge()
                self._phase = outer

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per phase so far, including the phase that is running."""
        self._charge()
        if self._cuda is not None:
            torch.cuda.synchronize(self._cuda)
            self._read()
        return dict(self._seconds)

    @property
    def total(self) -> float:
        """Seconds that the stopwatch has run, the sum over all phases."""
        return sum(self.seconds.values())

    def _now(self) -> Any:
        if self._cuda is None:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._cuda))
        return event

    def _charge(self) -> None:
        if self._phase is None:
            return
        since, self._since = self._since, self._now()
        self._open.append((self._phase, since, self._since))
        # On a GPU they are bounded, however seldom somebody reads.
        if self._cuda is None or len(self._open) >= _HELD:
            self._read()

    def _read(self) -> None:
        while self._open and (self._cuda is None or self._open[0][2].query()):
            phase, begun, ended = self._open.popleft()
            took = ended - begun if self._cuda is None else 1e-3 * begun.elapsed_time(ended)
            self._seconds[phase] = self._seconds.get(phase, 0.0) + took


def charged(stopwatch: Stopwatch | None, phase: str) -> Callable[[], AbstractContextManager[None]]:
    return nullcontext if stopwatch is None else partial(stopwatch.phase, phase)
