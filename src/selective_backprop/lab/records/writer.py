"""Writing a record while its run happens, so that a crash costs one line at most."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

import selective_backprop as sb
from selective_backprop.lab.records.example_history import examples_path
from selective_backprop.lab.records.files import sync_folder
from selective_backprop.lab.records.lines import encode
from selective_backprop.lab.records.schema import (
    SCHEMA,
    Header,
    Observation,
    Point,
    is_recorded,
    read_run,
    record_path,
    utc_now,
)


class RunWriter:
    """Records one run while it happens; without `end` the run stays unfinished.

    Example:
        >>> import tempfile
        >>> identity = {"strategy": {"name": "traditional"}, "seed": 0, "data": "digits"}
        >>> header = Header.here(identity, {"data": "digits"}, device="cpu", command="…")
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
                `.partial`, with a number where there are several, and so does what became of the
                examples.

        Raises:
            RecordError: if this run is recorded and finished, and `replace` is not set.
        """
        path = record_path(Path(folder), header)
        first = _header_line(header)
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_recorded(path):
            finished = is_finished(path)
            if finished and not replace:
                raise sb.RecordError(
                    f"{path} already holds this run, finished. Read it instead of running again, "
                    "choose another folder, or open it with replace=True."
                )
            for file in (path, examples_path(path)):
                if file.exists():
                    _set_aside(file, ".replaced" if finished else ".partial")
        _put(path, [first])
        return cls(path)

    @classmethod
    def go_on(
        cls,
        folder: str | Path,
        header: Header,
        points: Sequence[Point],
        observations: Sequence[Observation],
    ) -> "RunWriter":
        """Take up the record of an unfinished run where a checkpoint of the run stands.

        What was recorded after the checkpoint is let go: the run comes to it again.

        Args:
            folder: where records lie.
            header: what runs; the record keeps the header that it has.
            points: evaluations up to the checkpoint.
            observations: what probes saw up to it.
        """
        path = record_path(Path(folder), header)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(sb.RecordError):
            header = read_run(path).header
        lines, left = [_header_line(header)], list(observations)
        for point in points:
            lines.append(_point_line(point))
            while left and left[0].progress <= point.progress:
                lines.append(_observation_line(left.pop(0)))
        _put(path, lines)
        return cls(path)

    def point(self, point: Point) -> None:
        """Record an evaluation; it is on the disk when this returns."""
        _append(self._file, _point_line(point))

    def observation(self, observation: Observation) -> None:
        """Record what a probe saw; it is on the disk when this returns."""
        _append(self._file, _observation_line(observation))

    def end(self, meters: Mapping[str, Any], **more: Any) -> None:
        """Record that the run is finished.

        Args:
            meters: whatever was metered over the whole of it.
            more: what else there is to say of it.
        """
        last = {"kind": "end", "status": "finished", "ended": utc_now(), **more}
        _append(self._file, encode({**last, "meters": dict(meters)}))
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


def _header_line(header: Header) -> bytes:
    known = {name: value for name, value in vars(header).items() if value is not None}
    return encode({"kind": "run", "schema": SCHEMA, **known})


def _point_line(point: Point) -> bytes:
    return encode({"kind": "point", **asdict(point)})


def _observation_line(observation: Observation) -> bytes:
    return encode({"kind": "observation", **asdict(observation)})


def _put(path: Path, lines: Sequence[bytes]) -> None:
    """Put lines in place of a record, or begin it with them."""
    # Written elsewhere and then renamed, so that no crash leaves a record without its header.
    fresh = path.with_name(path.name + ".new")
    with FileIO(fresh, "w") as file:
        _append(file, b"".join(lines))
    fresh.replace(path)
    sync_folder(path.parent)


def is_finished(path: Path) -> bool:
    """Return whether a file is the record of a finished run."""
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
