"""Checkpoints of a run: the last and the one before, each whole or refused, none of them code."""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import selective_backprop as sb
from selective_backprop._core.errors import warn
from selective_backprop.lab.records.files import replacing
from selective_backprop.lab.records.lines import decode, encode

FORMAT = 3
SUFFIX = ".checkpoint"


class Checkpoints:
    """The last two checkpoints of one run, beside its record.

    Args:
        record: the run's record.
        identity: what a checkpoint must be of to be loaded here: names, and numbers or texts,
            nested in mappings.
    """

    def __init__(self, record: Path, identity: Mapping[str, Any]) -> None:
        self.path = record.with_suffix(SUFFIX)
        self.before = record.with_suffix(SUFFIX + ".before")  # the one before the last
        # As plain as a line of a record, which enumerations and tuples are not.
        self._identity = decode(encode({"format": FORMAT, **identity}))

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint; whatever happens, a whole one is on the disk if there was one.

        Raises:
            RecordError: if it cannot be written; the last one is then left as it was.
        """
        try:
            with replacing(self.path, before=self.before) as file:
                torch.save({"identity": self._identity, "state": dict(state)}, file)
        except (OSError, RuntimeError) as error:  # torch raises the second where the disk is full
            why = getattr(error, "strerror", None) or error
            raise sb.RecordError(f"{self.path} cannot be written: {why}") from error

    def load(self) -> tuple[Path, dict[str, Any]] | None:
        """Return the last whole checkpoint, its file and its state; None if there is none.

        Warns where one is damaged, and the one before it, or none, is used instead.

        Raises:
            RecordError: if it is of another run, or of another version; the difference is named.
        """
        for path, otherwise in (
            (self.path, "the one before it is used, if there is one"),
            (self.before, "the run begins anew"),
        ):
            if not path.exists():
                continue
            try:
                identity, state = _read(path)
            except (
                Exception
            ) as error:  # what foreign bytes make the reader raise is anybody's guess
                warn(
                    f"{path} is damaged, or holds something else than tensors, numbers and text "
                    f"({error}), and is not loaded; {otherwise}"
                )
            else:
                self._check(path, identity)
                return path, state
        return None

    def clear(self) -> None:
        """Take them away: the run is over."""
        for path in (self.path, self.before):
            path.unlink(missing_ok=True)

    def _check(self, path: Path, found: Mapping[str, Any]) -> None:
        here, there = dict(_flat(self._identity)), dict(_flat(found))
        for name in dict.fromkeys([*here, *there]):
            if here.get(name) != there.get(name):
                raise sb.RecordError(
                    f"{path} is of another run: {name} is {there.get(name)!r} there and "
                    f"{here.get(name)!r} here. Go on with what it was written with, or move that "
                    "file and the one before it away to begin anew."
                )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with zipfile.ZipFile(path) as file:  # torch itself does not look at the checksums
        damaged = file.testzip()
    if damaged:
        raise ValueError(f"the checksum of {damaged} does not fit")
    found = torch.load(path, map_location="cpu", weights_only=True)
    return dict(found["identity"]), dict(found["state"])


def _flat(nested: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value
