"""The random streams of a process, which Lightning's checkpoints leave out."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from selective_backprop._core.saved_state import Saved


def save_streams(device: torch.device) -> dict[str, Any]:
    """Return the states of the random streams, in plain containers.

    Args:
        device: the model's device; if it is a GPU, its stream is included.
    """
    kind, keys, *place = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "numpy": (str(kind), torch.from_numpy(np.array(keys, np.int64)), *place),
        "python": random.getstate(),
    }


def read_streams(saved: Saved, device: torch.device) -> Callable[[], None]:
    """Return a function that restores the random streams.

    Raises:
        ConfigurationError: if the saved state is damaged.
    """
    host, cuda, numpy, python = saved.fields("torch", "cuda", "numpy", "python")
    stream, gpu = host.random_state(), None
    if cuda.value is not None and device.type == "cuda":
        gpu = cuda.random_state(device)
    with numpy.inside():
        kind, keys, *place = numpy.value
        words = (kind, keys.cpu().numpy().astype(np.uint32), *place)
        np.random.RandomState().set_state(words)
    with python.inside():
        version, state, gauss = python.value
        numbers = (version, tuple(state), gauss)
        random.Random().setstate(numbers)

    def put() -> None:
        torch.set_rng_state(stream)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu, device)
        np.random.set_state(words)
        random.setstate(numbers)

    return put
