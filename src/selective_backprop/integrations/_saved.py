"""Save and load what adapters add to a framework's checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from selective_backprop._batches.serialization import seal, unseal
from selective_backprop._batches.structure import move_batch
from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.files import replacing
from selective_backprop._core.isolation import RandomStreams
from selective_backprop._core.saved_state import Saved
from selective_backprop._sampling.draws import Selection

INSTEAD = "Start a new training, or load only the model's weights."


def rank_file(folder: str | Path, name: str, rank: int, ranks: int) -> Path:
    """Return the path of a rank's state in a checkpoint."""
    return Path(folder) / f"{name}-{rank}-of-{ranks}.pt"


def save_state(state: dict[str, Any], path: Path) -> None:
    """Write a state atomically: a file is never left half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        torch.save(state, file)


def load_state(path: Path) -> dict[str, Any]:
    """Return a saved state, without running any code from the file.

    Raises:
        ConfigurationError: if the file is missing or cannot be read.
    """
    if not path.is_file():
        there = ", ".join(sorted(file.name for file in path.parent.glob("*-of-*.pt")))
        why = f", or by another number of processes ({there} is there)" if there else ""
        raise ConfigurationError(
            f"{path} is missing, so selection cannot continue from this checkpoint. It was saved "
            f"without selection{why}. {INSTEAD}"
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes may make the reader raise anything
        raise ConfigurationError(
            f"{path} is damaged, so selection cannot continue from this checkpoint: {error}. "
            f"{INSTEAD}"
        ) from error


def unpack_selected(saved: Saved, device: torch.device, *, selects: bool = True) -> Any:
    """Return a batch and its selection, on the device. Without `selects`, the selection is None."""
    found = unseal(saved, tuple)
    if len(found) != 2 or isinstance(found[1], Selection) is not selects:
        raise saved.refuse("a batch with its selection")
    return move_batch(found, device)


def save_streams(device: torch.device) -> dict[str, Any]:
    """Return the states of the random streams, that of a GPU included, as plain data."""
    gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return {"host": seal(RandomStreams.now()), "cuda": gpu}


def read_streams(saved: Saved, device: torch.device) -> Callable[[], None]:
    """Return a function that restores the random streams.

    Raises:
        ConfigurationError: if the saved state is damaged.
    """
    host, cuda = saved.fields("host", "cuda")
    streams, gpu = unseal(host, RandomStreams), None
    if cuda.value is not None and device.type == "cuda":
        gpu = cuda.random_state(device)

    def put_back() -> None:
        streams.put_back()
        if gpu is not None:
            torch.cuda.set_rng_state(gpu, device)

    return put_back
