"""Checkpoints of a run: the last and the one before, each whole or refused, none of them code.

A checkpoint is a line that says what the file is, a line with the SHA-256 of what follows, and what
`torch.save` wrote. It is written beside its place, forced to the disk, and renamed; the one that
was there stays as the one before.
"""

import hashlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import selective_backprop as sb
from selective_backprop._core.errors import warn
from selective_backprop.lab.records.files import replacing
from selective_backprop.lab.records.lines import decode, encode

FORMAT = 2
SUFFIX = ".checkpoint"
_MAGIC = b"selective-backprop checkpoint\n"
_DIGEST = 2 * hashlib.sha256().digest_size


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
        content = io.BytesIO()
        torch.save({"identity": self._identity, "state": dict(state)}, content)
        digest = hashlib.sha256(content.getbuffer()).hexdigest().encode()
        try:
            with replacing(self.path, before=self.before) as file:
                file.writelines([_MAGIC, digest, b"\n", content.getbuffer()])
        except OSError as error:
            raise sb.RecordError(
                f"{self.path} cannot be written: {error.strerror or error}"
            ) from error

    def load(self) -> dict[str, Any] | None:
        """Return the state of the last whole checkpoint; None if there is none.

        Warns where one is damaged, and the one before it, or none, is used instead.

        Raises:
            RecordError: if it is of another run, or of another version; the difference is named.
        """
        problems = []
        for path in filter(Path.exists, (self.path, self.before)):
            try:
                content = _read(path)
            except sb.RecordError as error:
                problems.append(str(error))
                continue
            for problem in problems:
                warn(f"{problem}; the one before it is used")
            self._check(path, content["identity"])
            return content["state"]
        for problem in problems:
            warn(f"{problem}; there is no other")
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


def _read(path: Path) -> dict[str, Any]:
    try:
        content = memoryview(path.read_bytes())
    except OSError as error:
        raise sb.RecordError(f"{path} cannot be read ({error.strerror})") from error
    begins = len(_MAGIC) + _DIGEST + 1
    if content[: len(_MAGIC)] != _MAGIC or len(content) < begins:
        raise sb.RecordError(f"{path} is no checkpoint, or truncated")
    digest = hashlib.sha256(content[begins:]).hexdigest().encode()
    if content[len(_MAGIC) : begins - 1] != digest:
        raise sb.RecordError(f"{path} is damaged: its checksum does not fit its content")
    try:
        found = torch.load(io.BytesIO(content[begins:]), map_location="cpu", weights_only=True)
        return {"identity": dict(found["identity"]), "state": dict(found["state"])}
    except Exception as error:  # what foreign bytes make the reader raise is anybody's guess
        raise sb.RecordError(
            f"{path} holds something else than tensors, numbers and text, and is not loaded"
        ) from error


def _flat(nested: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value
