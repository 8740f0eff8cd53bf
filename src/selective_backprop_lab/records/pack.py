"""Packs: all records of a folder in one compressed file, `runs.jsonl.xz`.

It holds the lines of one record after the other, each beginning with its header. If a record is
both in a file and in the pack, the file is read.
"""

import lzma
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import selective_backprop as sb
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.lines import IDENTITY, decode, read_value, record_name

PACK = "runs.jsonl.xz"
_LARGEST = (
    2**28
)  # bytes of a whole pack in memory: some 100,000 runs; a few kB could unpack to more
_HEADERS = re.compile(rb'^(?={"kind": "run")', re.MULTILINE)


def packed(folder: Path) -> Mapping[str, bytes]:
    """Return the lines of each record in a folder's pack, by name; empty without a pack."""
    path = folder / PACK
    if not path.is_file():
        return {}
    state = path.stat()
    return _remembered(path, state.st_mtime_ns, state.st_size)


def pack(files: Iterable[Path]) -> None:
    """Move records from their files into the packs of their folders, within `locked(folder)`."""
    folders: dict[Path, list[Path]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    for folder, found in folders.items():
        records = dict(packed(folder)) | {file.name: file.read_bytes() for file in found}
        content = b"".join(records[name] for name in sorted(records))
        if len(content) > _LARGEST:
            raise sb.RecordError(f"{folder / PACK}: has no room for so many records")
        with replacing(folder / PACK) as out:
            out.write(lzma.compress(content, preset=6))
        for file in found:
            file.unlink()


@lru_cache(maxsize=8)
def _remembered(path: Path, changed: int, size: int) -> dict[str, bytes]:
    return _split(path)


def _split(path: Path) -> dict[str, bytes]:
    try:
        with lzma.open(path) as file:
            content = file.read(_LARGEST + 1)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise sb.RecordError(f"{path}: cannot be read as a pack of records ({error}).") from error
    if len(content) > _LARGEST:
        raise sb.RecordError(f"{path}: holds more than {_LARGEST / 2**20:.0f} MiB of records")
    records: dict[str, bytes] = {}
    number = 1
    for record in filter(None, _HEADERS.split(content)):
        try:
            # What follows the identity does not name the record, and is long.
            start, more, _ = record.partition(b"\n")[0].partition(b', "config": ')
            header = decode(start + b"}" if more else start)
            identity = read_value(header.get("identity"), IDENTITY, "identity", needed=True)
        except ValueError as error:
            raise sb.RecordError(
                f"{path}, line {number}: no header of a record ({error})."
            ) from error
        records[record_name(identity)] = record
        number += record.count(b"\n")
    return records
