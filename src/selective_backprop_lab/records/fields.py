"""Check values from a file against the types of their fields."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

_WORDS = {int: "a whole number below 2**63", float: "a number", str: "text", bool: "true or false"}


def read_fields(kind: type[Any], entry: Mapping[str, Any]) -> Any:
    """Return a dataclass from values by name; values with unknown names are left out.

    A field whose default is None may be missing.

    Raises:
        ValueError: if a value is of another type than its field; the message names the field.
    """
    values: dict[str, Any] = {}
    for field in _fields(kind):
        value = entry.get(field.name)
        if value is not None or field.default is not None:
            values[field.name] = read_value(value, field.type, field.name)
    return kind(**values)


def read_value(value: Any, kind: Any, name: str) -> Any:
    """Return a value as its field holds it: for a float field, a whole number becomes a float.

    A typed dictionary, also one in an `Annotated`, gives the types of some keys of a mapping. The
    mapping may have other keys, and is returned unchanged.

    Raises:
        ValueError: if the value is of another type; the message has the name.
    """
    origin, inner, is_record, is_typed = _shape(kind)
    if origin is UnionType:  # of None and one other type
        return None if value is None else read_value(value, inner[0], name)
    if origin is Annotated:
        return read_value(value, inner[1], name)
    if is_record and isinstance(value, dict):
        return read_fields(kind, value)
    if is_typed and isinstance(value, dict):
        for key, hint in _hints(kind).items():
            if key in value or key in kind.__required_keys__:
                read_value(value.get(key), hint, f"{name}.{key}")
        return value
    if origin is Mapping and isinstance(value, dict):
        for key, each in value.items():
            read_value(each, inner[1], f"{name}.{key}")
        return value
    if origin in (list, tuple) and isinstance(value, list):
        return origin(read_value(each, inner[0], f"an entry of {name}") for each in value)
    # Larger whole numbers cannot be counters, seeds or floats.
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if (kind is int and whole) or (kind is float and (whole or isinstance(value, float))):
        return kind(value)
    if kind is Any or (kind in (str, bool) and isinstance(value, kind)):
        return value
    wanted = _WORDS.get(kind, "a list" if origin in (list, tuple) else "a mapping")
    raise ValueError(f"{name} is {value!r:.400}, expected {wanted}")


_hints, _fields = cache(get_type_hints), cache(fields)


@cache
def _shape(kind: Any) -> tuple[Any, tuple[Any, ...], bool, bool]:
    """Return a type's origin and arguments, and whether it is a dataclass or a typed dictionary.

    This is cached, because records hold millions of values of a few types.
    """
    return get_origin(kind), get_args(kind), is_dataclass(kind), is_typeddict(kind)
