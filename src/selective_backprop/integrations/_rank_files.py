"""Files with each rank's state of selection, beside a framework's own checkpoint."""

import os
from pathlib import Path
from typing import Any

import torch

from selective_backprop._core.errors import ConfigurationError


def rank_file(folder: str | Path, name: str, rank: int, ranks: int) -> Path:
    """Return the path of a rank's state in a checkpoint."""
    return Path(folder) / f"{name}-{rank}-of-{ranks}.pt"


def save_state(state: dict[str, Any], path: Path) -> None:
    """Write a state atomically: the file is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    torch.save(state, beside)
    os.replace(beside, path)


def load_state(path: Path) -> dict[str, Any]:
    """Return a saved state; no code in the file is run.

    Raises:
        ConfigurationError: if the file is missing or cannot be read.
    """
    if not path.is_file():
        there = sorted(file.name for file in path.parent.glob("*-of-*.pt"))
        raise ConfigurationError(
            f"{path} is missing, so selection cannot go on from this checkpoint. It was saved "
            "without selection, or by another number of processes"
            f" ({', '.join(there)} is there). Train anew, or load the model's weights alone."
            if there
            else f"{path} is missing, so selection cannot go on from this checkpoint, which was "
            "saved without it. Train anew, or load the model's weights alone."
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes may make the reader raise anything
        raise ConfigurationError(
            f"{path} is damaged, so selection cannot go on from this checkpoint: {error}. Train "
            "anew, or load the model's weights alone."
        ) from error
