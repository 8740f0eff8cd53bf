"""Records as lines of strict JSON, their names, the types of their fields, and packs of them.

JSON has no NaN and no infinity. They are stored as the strings "NaN", "Infinity" and "-Infinity",
and such a text is read back as a number.

A pack holds all records of a folder in one compressed file, `runs.jsonl.xz`: the lines of one
record after the other, each beginning with its header. If a record is both in a file and in the
pack, the file is read.
"""

import hashlib
import json
import lzma
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import selective_backprop as sb
from selective_backprop_lab.records.files import replacing

SUFFIX = ".jsonl"
PACK = "runs.jsonl.xz"
_LARGEST = 2**28  # bytes of a whole pack: some 100,000 runs; a few kB could unpack to more
_HEADERS = re.compile(rb'^(?={"kind": "run")', re.MULTILINE)
_UNUSUAL = (b'NaN"', b'Infinity"', b"\\", b"\x7f")
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_WORDS = {int: "a whole number below 2**63", float: "a number", str: "text", bool: "true or false"}
IDENTITY = {"strategy": {"name": str}, "seed": int}  # what names a record


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse)


def encode(entry: Mapping[str, Any], *, sort: bool = False) -> bytes:
    """Return a mapping as a line of strict JSON; with `sort`, equal mappings give equal lines."""
    try:  # the usual case, and fast
        line = json.dumps(entry, sort_keys=sort, allow_nan=False)
    except (TypeError, ValueError):
        line = json.dumps(_plain(entry), sort_keys=sort, allow_nan=False)
    return line.encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the mapping that a line holds; its texts are `printable`."""
    try:
        entry = _JSON.decode(line.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(entry, dict):
        raise ValueError(f"a {type(entry).__name__} where an object is expected")
    # Others hold neither non-finite numbers nor texts that may not be printable.
    usual = line.isascii() and not any(part in line for part in _UNUSUAL)
    return entry if usual else _revive(entry)


def printable(text: str) -> str:
    """Return a text of a file as one line that cannot control a terminal or turn a line around."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without nesting: `{"a": {"b": 1}}` becomes `{"a.b": 1}`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": entry for inner, entry in flat(value).items()}
        else:
            found[key] = value
    return found


def record_name(identity: Mapping[str, Any]) -> str:
    """Return the file name of the record of a run with this identity."""
    key = hashlib.sha256(encode(identity, sort=True)).hexdigest()[:8]
    strategy = re.sub(r"[^A-Za-z0-9._-]+", "_", identity["strategy"]["name"])[:60]
    return f"{strategy}-seed{identity['seed']}-{key}{SUFFIX}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if getattr(value, "ndim", None) == 0:  # a single number of NumPy or torch
        return _plain(value.item())
    raise sb.RecordError(
        f"{value!r} is a {type(value).__name__}, but a record holds only numbers, text, and lists "
        "and mappings of them. Convert the value first."
    )


def _revive(value: Any) -> Any:
    if isinstance(value, dict):
        return {printable(key): _revive(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_revive(entry) for entry in value]
    return _NON_FINITE.get(value, printable(value)) if isinstance(value, str) else value


def read_fields(kind: type[Any], entry: Mapping[str, Any]) -> Any:
    """Return a dataclass from values by name. A field whose default is None may be missing."""
    values: dict[str, Any] = {}
    for name, hint, needed in _fields(kind):
        value = entry.get(name)
        if type(value) is hint and hint is not int:  # the usual case, and fast
            values[name] = value
        elif value is not None or needed:
            values[name] = read_value(value, hint, name)
    return kind(**values)


def read_value(value: Any, kind: Any, name: str, *, needed: bool = False) -> Any:
    """Return a value of a type, or a mapping with the types of some keys, or raise ValueError."""
    origin, inner = (dict, ()) if isinstance(kind, dict) else _shape(kind)
    if origin is UnionType:  # of None and one other type
        return None if value is None else read_value(value, inner[0], name)
    if isinstance(value, dict):
        if origin is dict:
            for key in kind if needed else kind.keys() & value.keys():
                read_value(value.get(key), kind[key], f"{name}.{key}", needed=needed)
            return value
        if is_dataclass(kind):
            return read_fields(kind, value)
        if origin is Mapping:
            if {*map(type, value.values())} - {inner[1]}:
                for key, each in value.items():
                    read_value(each, inner[1], f"{name}.{key}")
            return value
    elif origin in (list, tuple) and isinstance(value, list):
        if inner[0] is not float or {*map(type, value)} - {float}:
            return origin(read_value(each, inner[0], f"an entry of {name}") for each in value)
        return origin(value)
    # Larger whole numbers cannot be counters, seeds or floats.
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if (kind is int and whole) or (kind is float and (whole or isinstance(value, float))):
        return kind(value)
    if kind is Any or (kind in (str, bool) and isinstance(value, kind)):
        return value
    wanted = "a list" if origin in (list, tuple) else "a mapping"
    if not origin:
        wanted = _WORDS.get(kind, wanted)
    raise ValueError(f"{name} is {value!r:.400}, expected {wanted}")


@cache  # records hold millions of values of a few types
def _shape(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


@cache
def _fields(kind: Any) -> list[tuple[str, Any, bool]]:
    return [(each.name, each.type, each.default is not None) for each in fields(kind)]


def packed(folder: Path) -> Mapping[str, bytes]:
    """Return the lines of each record in a folder's pack, by name; empty without a pack."""
    path = folder / PACK
    if not path.is_file():
        return {}
    state = path.stat()
    return _split(path, state.st_mtime_ns, state.st_size)


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


@lru_cache(maxsize=8)  # a pack that was changed is read again
def _split(path: Path, changed: int, size: int) -> dict[str, bytes]:
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
