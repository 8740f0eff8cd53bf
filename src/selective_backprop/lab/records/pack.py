"""Packs: all records of a folder in one compressed file, `runs.jsonl.xz`.

Uncompressed it is the lines of one record after the other, each beginning with its header. Records
of one study repeat each other, so that a pack takes a tenth of their size. A record that has a file
and is in the pack as well is read from the file.
"""

import lzma
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import selective_backprop as sb
from selective_backprop.lab.records.files import replacing
from selective_backprop.lab.records.lines import decode, record_name

PACK = "runs.jsonl.xz"
_HEADER = b'{"kind": "run"'


def packed(folder: Path) -> Mapping[str, bytes]:
    """Return the lines of each record of a folder's pack by name; none where there is no pack.

    Raises:
        RecordError: if the pack cannot be read.
    """
    path = folder / PACK
    try:
        state = path.stat()
    except OSError:
        return {}
    return _remembered(path, state.st_mtime_ns, state.st_size)


def pack(files: Iterable[Path]) -> None:
    """Move records from their files into the packs of their folders, replacing those of a name.

    Raises:
        RecordError: if a pack that is there cannot be read.
    """
    folders: dict[Path, list[Path]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    for folder, found in folders.items():
        with _locked(folder):
            records = dict(packed(folder)) | {file.name: file.read_bytes() for file in found}
            content = b"".join(records[name] for name in sorted(records))
            with replacing(folder / PACK) as out:
                out.write(lzma.compress(content, preset=6))
            for file in found:
                file.unlink()


def unpack_into(folder: Path, source: Path) -> list[Path]:
    """Write the records of a pack as files, and return these in order of name.

    Raises:
        RecordError: if the pack cannot be read, or a file of a record's name is there.
    """
    records = _split(source)
    folder.mkdir(parents=True, exist_ok=True)
    there = [name for name in records if (folder / name).exists()]
    if there:
        raise sb.RecordError(f"{folder / there[0]} is there already; name another folder")
    for name, content in records.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in sorted(records)]


@lru_cache(maxsize=8)
def _remembered(path: Path, changed: int, size: int) -> dict[str, bytes]:
    return _split(path)


def _split(path: Path) -> dict[str, bytes]:
    """Return each record of a pack under its name."""
    try:
        content = lzma.decompress(path.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise sb.RecordError(f"{path}: cannot be read as a pack of records ({error}).") from error
    records: dict[str, list[bytes]] = {}
    lines: list[bytes] = []
    for line in content.splitlines(keepends=True):
        if line.startswith(_HEADER):
            try:
                lines = records.setdefault(record_name(decode(line)["identity"]), [])
            except (ValueError, KeyError, TypeError) as error:
                raise sb.RecordError(f"{path}: a header in it is damaged ({error}).") from error
            lines.clear()
        lines.append(line)
    return {name: b"".join(lines) for name, lines in records.items()}


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Keep other processes from changing the same pack; where locks are not known, hope."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
