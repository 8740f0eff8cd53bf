"""Save and load the state of selection that resuming a training needs."""

from pathlib import Path
from typing import Any

import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.saved_state import Saved
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop.integrations._keras._backend import keras
from selective_backprop.integrations._saved import (
    load_state,
    read_streams,
    save_state,
    save_streams,
)

FIELDS = ("epoch", "loader", "seeds", "streams")
KEPT = 2  # states; Keras may be interrupted before it writes its own backup of the same epoch


def pack(epoch: int, loader: SelectiveLoader, model: Any) -> dict[str, Any]:
    """Return the state at an epoch's start, with the model's seeds, which Keras does not save."""
    return {
        "epoch": epoch,
        "loader": loader.state_dict(),
        "seeds": [variable.value.detach().clone() for variable in _seeds(model)],
        "streams": save_streams(torch.device("cpu"), loader),
    }


def unpack(state: dict[str, Any], loader: SelectiveLoader, model: Any) -> None:
    """Continue from a state that `pack` returned.

    Raises:
        ConfigurationError: if the state is damaged, or of another loader or model. In this case
            nothing is changed.
    """
    _, own, layers, streams = Saved(state).fields(*FIELDS)
    seeds, values = _seeds(model), layers.items()
    if len(seeds) != len(values):
        raise ConfigurationError(
            f"the state holds {len(values)} seeds of layers, but the model has "
            f"{len(seeds)}. Build the same model as before"
        )
    for variable, value in zip(seeds, values, strict=True):
        like = variable.value
        value.tensor(like.dtype, shape=tuple(like.shape), nan=True)
    put_back = read_streams(streams, torch.device("cpu"), loader)
    with own.inside():
        loader.load_state_dict(own.value)
    for variable, value in zip(seeds, values, strict=True):
        variable.assign(value.value)
    put_back()


def _seeds(model: Any) -> list[Any]:
    """Return the variables that are not weights, such as seeds; Keras does not save them."""
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


class Backup:
    """The latest states of selection, in the folder of Keras's own backup.

    Raises:
        ConfigurationError: if the folder is not on this machine.
    """

    def __init__(self, folder: str) -> None:
        if "://" in str(folder):
            raise ConfigurationError(
                f"backup_dir={str(folder)!r}: the state of selection is saved beside Keras's "
                "backup, so this must be a folder of this machine"
            )
        self._folder = Path(folder)

    def save(self, state: dict[str, Any]) -> None:
        """Save a state, and delete the oldest ones."""
        save_state(state, self._path(state["epoch"]))
        for old in sorted(self._folder.glob("selection-*.pt"))[:-KEPT]:
            old.unlink()

    def load(self, epoch: int) -> dict[str, Any] | None:
        """Return the state at an epoch's start, or None if there is none."""
        path = self._path(epoch)
        return load_state(path) if path.exists() else None

    def _path(self, epoch: int) -> Path:
        return self._folder / f"selection-{epoch:06d}.pt"


def find_backup(callbacks: list[Any]) -> Backup | None:
    """Return a backup beside that of Keras's `BackupAndRestore`; None without this callback."""
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            return Backup(callback.backup_dir)
    return None
