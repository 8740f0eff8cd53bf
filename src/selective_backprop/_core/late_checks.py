"""Checks whose outcome may be on a GPU, read without making the host wait for the GPU."""

import math
from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor


class LateChecks:
    """Raise an error at once if a check fails on the CPU, and a few checks later on a GPU."""

    def __init__(self) -> None:
        self._running: deque[tuple[torch.cuda.Event, Tensor, Callable[[], Exception]]] = deque()

    def add(self, passed: Tensor, failure: Callable[[], Exception]) -> None:
        """Raise what `failure` returns unless a tensor holds one finite number, or True."""
        if passed.device.type != "cuda":
            if not _holds(passed):
                raise failure()
            return
        self._collect()
        flag = torch.empty(1, dtype=passed.dtype, pin_memory=True)
        flag.copy_(passed.reshape(1), non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(passed.device))
        self._running.append((event, flag, failure))

    def wait(self) -> None:
        for event, _, _ in self._running:
            if not event.query():
                event.synchronize()
        self._collect()

    def _collect(self) -> None:
        while self._running and self._running[0][0].query():
            _, flag, failure = self._running.popleft()
            if not _holds(flag):
                raise failure()


def _holds(flag: Tensor) -> bool:
    return math.isfinite(flag) if flag.is_floating_point() else bool(flag)
