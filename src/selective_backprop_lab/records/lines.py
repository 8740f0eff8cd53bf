"""Records as lines of strict JSON, and their names.

JSON has no NaN and no infinity. They are stored as the strings "NaN", "Infinity" and "-Infinity",
and read back as numbers. A text that equals one of these strings also comes back as a number.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypedDict

import selective_backprop as sb

SUFFIX = ".jsonl"
_UNUSUAL = (b'NaN"', b'Infinity"', b"\\", b"\x7f")
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse)


class Strategy(TypedDict):
    """The name of a run's strategy, beside its options."""

    name: str


class Identity(TypedDict):
    """The parts of a run's identity that name its record."""

    strategy: Strategy
    seed: int


def encode(entry: Mapping[str, Any], *, sort: bool = False) -> bytes:
    """Return a mapping as one line of strict JSON, with its line break.

    It may hold numbers (also of NumPy and torch), text, booleans, None, and lists and mappings of
    them. Tuples are read back as lists, keys as text. With `sort`, equal mappings give equal lines.
    """
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
    """Return a text of a file as one line that cannot control a terminal or turn a line around.

    Line breaks and tabs become blanks; what else cannot be printed or encoded becomes "?".
    """
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
    """Return a value in a form that strict JSON can hold."""
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
    """Turn the strings that `_plain` wrote for non-finite numbers back into numbers."""
    if isinstance(value, dict):
        return {printable(key): _revive(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_revive(entry) for entry in value]
    return _NON_FINITE.get(value, printable(value)) if isinstance(value, str) else value
