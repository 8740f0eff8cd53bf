"""The random streams of a process, which Lightning's checkpoints leave out."""

import random
from typing import Any

import numpy as np
import torch


def save_streams(device: torch.device) -> dict[str, Any]:
    """Return where the random streams stand, in plain containers.

    Args:
        device: the model's; where it is a GPU, its stream is among them.
    """
    kind, keys, *place = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "numpy": (str(kind), torch.from_numpy(np.array(keys, np.int64)), *place),
        "python": random.getstate(),
    }


def load_streams(saved: dict[str, Any], device: torch.device) -> None:
    """Put the random streams where they stood."""
    torch.set_rng_state(saved["torch"].cpu())
    if saved["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(saved["cuda"].cpu(), device)
    kind, keys, *place = saved["numpy"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), *place))
    version, state, gauss = saved["python"]
    random.setstate((version, tuple(state), gauss))
