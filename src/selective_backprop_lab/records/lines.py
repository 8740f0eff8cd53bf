"""Records as lines of strict JSON, numbers that JSON does not know included, and their names.

JSON has no NaN and no infinity: they are stored as the strings "NaN", "Infinity" and "-Infinity"
and read back as numbers. A text that is exactly one of these therefore comes back as a number.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypedDict

import selective_backprop as sb

SUFFIX = ".jsonl"
# In lines without these nothing is to be undone: numbers that are not finite, and no text.
_SPELLED = re.compile(rb'"(NaN|-?Infinity)"|\\ud|[^\x00-\x7f]', re.IGNORECASE)
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Strategy(TypedDict):
    """What names a run's strategy, beside its options."""

    name: str


class Identity(TypedDict):
    """What names a run's record, beside all else that was chosen."""

    strategy: Strategy
    seed: int


def encode(entry: Mapping[str, Any], *, sort: bool = False) -> bytes:
    """Return a mapping as one line of strict JSON, its line break included.

    It may hold numbers (NumPy's and torch's too), text, booleans, None, and lists and mappings of
    them. Tuples come back as lists, keys as text. Equal mappings give equal lines with `sort`.

    Raises:
        RecordError: if there is anything else in it.
    """
    return json.dumps(_plain(entry), sort_keys=sort, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the mapping that a line holds.

    Raises:
        ValueError: if the line is not strict JSON in UTF-8, or holds something else.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        entry = json.loads(line.decode(), parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(entry, dict):
        raise ValueError(f"a {type(entry).__name__} where an object is expected")
    return _revive(entry) if _SPELLED.search(line) else entry


def record_name(identity: Mapping[str, Any]) -> str:
    """Return the name of the file that a run of this identity is recorded in."""
    key = hashlib.sha256(encode(identity, sort=True)).hexdigest()[:8]
    strategy = re.sub(r"[^A-Za-z0-9._-]+", "_", identity["strategy"]["name"])[:60]
    return f"{strategy}-seed{identity['seed']}-{key}{SUFFIX}"


def _plain(value: Any) -> Any:
    """Return a value as strict JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if getattr(value, "ndim", None) == 0:  # one number of NumPy's or torch's
        return _plain(value.item())
    raise sb.RecordError(
        f"{value!r} is a {type(value).__name__}; a record holds numbers, text, lists and mappings "
        "of them. Write down what it stands for instead."
    )


def _revive(value: Any) -> Any:
    """Undo `_plain`'s spelling of numbers that are not finite."""
    if isinstance(value, dict):
        return {_drawable(key): _revive(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_revive(entry) for entry in value]
    return _NON_FINITE.get(value, _drawable(value)) if isinstance(value, str) else value


def _drawable(text: str) -> str:
    """Return a text with a "?" for what is no text, which a command line and JSON may hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()
