"""Writing a record while its run happens, so that a crash costs one line at most."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

import selective_backprop as sb
from selective_backprop.lab._lines import encode
from selective_backprop.lab.records import (
    SCHEMA,
    Header,
    Observation,
    Point,
    read_run,
    record_path,
    utc_now,
)


class RunWriter:
    """Records one run while it happens; without `end` the run stays unfinished.

    Example:
        >>> import tempfile
        >>> header = Header.here({"data": "digits"}, arm="traditional", seed=0, command="…")
        >>> with tempfile.TemporaryDirectory() as folder, RunWriter.open(folder, header) as writer:
        ...     writer.end({"updates": 0})
        ...     read_run(writer.path).finished
        True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Unbuffered, so that nothing can be left in memory when the process dies.
        self._file = FileIO(path, "a")

    @classmethod
    def open(cls, folder: str | Path, header: Header, *, replace: bool = False) -> "RunWriter":
        """Start the record of a run.

        Args:
            folder: where records lie; made where it is missing.
            header: what runs.
            replace: whether a finished record of the same run may make room. Neither it nor an
                unfinished one is deleted: they stay beside the new file, as `.replaced` and
                `.partial`, with a number where there are several.

        Raises:
            RecordError: if this run is recorded and finished, and `replace` is not set.
        """
        path = record_path(Path(folder), header)
        path.parent.mkdir(parents=True, exist_ok=True)
        first = encode({"kind": "run", "schema": SCHEMA, **vars(header)})
        if path.exists():
            finished = _is_finished(path)
            if finished and not replace:
                raise sb.RecordError(
                    f"{path} already holds this run, finished. Read it instead of running again, "
                    "choose another folder, or open it with replace=True."
                )
            _set_aside(path, ".replaced" if finished else ".partial")
        # Written elsewhere and then renamed, so that no crash leaves a record without its header.
        fresh = path.with_name(path.name + ".new")
        with FileIO(fresh, "w") as file:
            _append(file, first)
        fresh.replace(path)
        _sync_folder(path.parent)
        return cls(path)

    def point(self, point: Point) -> None:
        """Record an evaluation; it is on the disk when this returns."""
        _append(self._file, encode({"kind": "point", **asdict(point)}))

    def observation(self, observation: Observation) -> None:
        """Record what a probe saw; it is on the disk when this returns."""
        _append(self._file, encode({"kind": "observation", **asdict(observation)}))

    def end(self, meters: Mapping[str, Any]) -> None:
        """Record that the run is finished, with whatever was metered over the whole of it."""
        _append(
            self._file,
            encode(
                {"kind": "end", "status": "finished", "ended": utc_now(), "meters": dict(meters)}
            ),
        )
        self._file.close()

    def close(self) -> None:
        """Stop recording; without `end` before it the run counts as unfinished."""
        self._file.close()

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _is_finished(path: Path) -> bool:
    try:
        return read_run(path).finished
    except sb.RecordError:
        return False


def _set_aside(path: Path, suffix: str) -> None:
    def names() -> Iterator[Path]:
        yield path.with_name(path.name + suffix)
        number = 2
        while True:
            yield path.with_name(f"{path.name}{suffix}{number}")
            number += 1

    path.rename(next(name for name in names() if not name.exists()))


def _append(file: FileIO, line: bytes) -> None:
    before = os.fstat(file.fileno()).st_size
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[file.write(rest) or 0 :]
        os.fsync(file.fileno())
    except OSError:
        # A full disk must not leave half a line in front of the next one.
        with suppress(OSError):
            file.truncate(before)
        raise


def _sync_folder(folder: Path) -> None:
    # A new name survives a power cut only if its folder was forced to the disk too. Not every
    # system can open a folder; there the file's own sync has to do.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
