"""Records as lines of strict JSON, their names, and the types of their fields.

JSON has no NaN and no infinity. They are stored as the strings "NaN", "Infinity" and "-Infinity",
and such a text is read back as a number.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin

import selective_backprop as sb

SUFFIX = ".jsonl"
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
