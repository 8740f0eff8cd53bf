"""torch's random streams as one run sees them, apart from the process's own."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class RandomStreams:
    """torch's random streams as a run sees them, on its GPU too; they begin at a seed."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._gpus = [device] if device.type == "cuda" else []
        self._states = [
            torch.Generator(place).manual_seed(seed).get_state()
            for place in (torch.device("cpu"), *self._gpus)
        ]
        self._in_use = False

    @contextmanager
    def own(self) -> Generator[None]:
        """Let the body draw from the run's streams; the global ones stay where they were."""
        with self.apart():
            torch.set_rng_state(self._states[0])
            for gpu, state in zip(self._gpus, self._states[1:], strict=True):
                torch.cuda.set_rng_state(state, gpu)
            self._in_use = True
            try:
                yield
            finally:
                self._states, self._in_use = self._now(), False

    @contextmanager
    def apart(self) -> Generator[None]:
        """Let the body draw what it wants, and put the global streams back."""
        with torch.random.fork_rng(self._gpus):
            yield

    def state_dict(self) -> dict[str, Any]:
        """Return where the run's streams stand, within `own` too."""
        return {"states": self._now() if self._in_use else list(self._states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`; not within `own`."""
        self._states = [stream.cpu() for stream in state["states"]]

    def _now(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]
