"""Write a record while its run happens, so that a crash costs at most one line."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import FileIO
from itertools import chain, count
from pathlib import Path
from typing import Any

import selective_backprop as sb
from selective_backprop_lab.records import schema
from selective_backprop_lab.records.example_history import examples_path
from selective_backprop_lab.records.files import lock, replacing
from selective_backprop_lab.records.lines import encode, packed


class TakenError(sb.RecordError):
    """A run that is recorded already, or that another process is recording."""


class RunWriter:
    """Record one run while it happens. Until it is closed, the record is locked."""

    def __init__(self, path: Path, lines: Sequence[bytes]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.writelines(lines)
        self.path = path
        # Unbuffered, so that nothing is left in memory when the process dies.
        self._file = FileIO(str(path), "a")
        lock(self._file.fileno())

    @classmethod
    def open(
        cls, folder: str | Path, header: schema.Header, *, replace: bool = False
    ) -> "RunWriter":
        """Start the record of a run in a folder, which is made if it is missing.

        An unfinished record of the same run, with its examples' history, is renamed to end in
        `.partial`. With `replace`, a finished one is renamed to end in `.replaced`, also from a
        pack; without, it is a `TakenError`. A number follows if there are several.
        """
        path = schema.record_path(folder, header)
        first, finished = _line(header), is_finished(path)
        if finished and not replace:
            raise TakenError(
                f"{path} already holds this run, finished. Read it instead of running again, "
                "choose another folder, or open it with replace=True."
            )
        if finished and not path.exists():  # in the pack, where the new record takes its place
            with replacing(path) as file:
                file.write(packed(path.parent)[path.name])
        for file in filter(Path.exists, (path, examples_path(path))):
            name = file.name + (".replaced" if finished else ".partial")
            places = (file.with_name(f"{name}{number}") for number in chain([""], count(2)))
            file.rename(next(place for place in places if not place.exists()))
        return cls(path, [first])

    @classmethod
    def go_on(
        cls,
        folder: str | Path,
        header: schema.Header,
        points: Sequence[schema.Point],
        observations: Sequence[schema.Observation],
    ) -> "RunWriter":
        """Continue a record from a checkpoint, and delete later entries."""
        path = schema.record_path(folder, header)
        with suppress(sb.RecordError):
            header = schema.read_run(path).header
        # The sort is stable, so what probes saw at a point follows it.
        entries = sorted([*points, *observations], key=lambda entry: entry.progress)
        return cls(path, [_line(entry) for entry in (header, *entries)])

    def add(self, entry: schema.Point | schema.Observation) -> None:
        """Record an evaluation, or what a probe saw; it is on the disk when this returns."""
        self._append(_line(entry))

    def end(self, meters: Mapping[str, Any], **more: Any) -> None:
        """Record that the run is finished, with the counts over the whole run."""
        last = {"kind": "end", "status": "finished", "ended": schema.utc_now(), **more}
        self._append(encode({**last, "meters": dict(meters)}))
        self.close()

    def close(self) -> None:
        """Stop recording; without an earlier `end`, the run counts as unfinished."""
        self._file.close()

    def _append(self, line: bytes) -> None:
        before = os.fstat(self._file.fileno()).st_size
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
            os.fsync(self._file.fileno())
        except OSError:
            # A full disk must not leave half a line before the next one.
            with suppress(OSError):
                self._file.truncate(before)
            raise


def is_finished(path: Path) -> bool:
    """Return whether there is a finished record, in a file or a pack, that can be read."""
    try:
        return schema.read_run(path).finished
    except sb.RecordError:
        return False


def _line(entry: schema.Header | schema.Point | schema.Observation) -> bytes:
    if isinstance(entry, schema.Header):
        known = {name: value for name, value in vars(entry).items() if value is not None}
        return encode({"kind": "run", "schema": schema.SCHEMA, **known})
    return encode({"kind": type(entry).__name__.lower(), **vars(entry)})
