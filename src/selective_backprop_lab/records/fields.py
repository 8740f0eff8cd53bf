"""Check values from a file against the types of their fields."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

_WORDS = {int: "a whole number below 2**63", float: "a number", str: "text", bool: "true or false"}


def read_fields(kind: type[Any], entry: Mapping[str, Any]) -> Any:
    """Return a dataclass from values by name; values with unknown names are left out.

    A field whose default is None may be missing. A ValueError names a field of another type.
    """
    values: dict[str, Any] = {}
    for name, hint, needed in _fields(kind):
        value = entry.get(name)
        if type(value) is hint and hint is not int:  # the usual case, and fast
            values[name] = value
        elif value is not None or needed:
            values[name] = read_value(value, hint, name)
    return kind(**values)


def read_value(value: Any, kind: Any, name: str) -> Any:
    """Return a value as its field holds it: for a float field, a whole number becomes a float.

    A typed dictionary, also one in an `Annotated`, gives the types of some keys of a mapping. The
    mapping may have other keys, and is returned unchanged. A value of another type is a ValueError.
    """
    origin, inner, is_record, is_typed = _shape(kind)
    if origin is UnionType:  # of None and one other type
        return None if value is None else read_value(value, inner[0], name)
    if origin is Annotated:
        return read_value(value, inner[1], name)
    if isinstance(value, dict):
        if is_record:
            return read_fields(kind, value)
        if is_typed:
            for key, hint in _hints(kind).items():
                if key in value or key in kind.__required_keys__:
                    read_value(value.get(key), hint, f"{name}.{key}")
            return value
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
    wanted = _WORDS.get(kind, "a list" if origin in (list, tuple) else "a mapping")
    raise ValueError(f"{name} is {value!r:.400}, expected {wanted}")


_hints = cache(get_type_hints)


@cache  # records hold millions of values of a few types
def _shape(kind: Any) -> tuple[Any, tuple[Any, ...], bool, bool]:
    """Return a type's origin and arguments, and whether it is a dataclass or a typed dictionary."""
    return get_origin(kind), get_args(kind), is_dataclass(kind), is_typeddict(kind)


@cache
def _fields(kind: Any) -> list[tuple[str, Any, bool]]:
    """Return the name and type of each field, and whether it may not be missing."""
    return [(each.name, each.type, each.default is not None) for each in fields(kind)]
