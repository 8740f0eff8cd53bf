"""torch's random streams for one run, separate from the process's own streams."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class RandomStreams:
    """torch's random streams for one run, also on its GPU, which begin at a seed."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._gpus = [device] if device.type == "cuda" else []
        self._states = [
            torch.Generator(place).manual_seed(seed).get_state()
            for place in (torch.device("cpu"), *self._gpus)
        ]
        self._in_use = False

    @contextmanager
    def own(self) -> Generator[None]:
        """Let the body draw from the run's streams; the global streams stay unchanged."""
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
        """Let the body draw from the global streams, then restore them."""
        with torch.random.fork_rng(self._gpus):
            yield

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run's streams, also within `own`, for `load_state_dict`."""
        return {"states": self._now() if self._in_use else list(self._states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`; do not call this within `own`."""
        self._states = [stream.cpu() for stream in state["states"]]

    def _now(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]
