"""Whatever may be wrong in a saved state: each value in it lost, of another kind, out of range."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from fixture_doors import bits
from torch import Tensor

import selective_backprop as sb

REMOVED = object()
ODD = (None, True, "odd", 0.5, -5, 10**30, math.nan, [1], {"odd": 1}, torch.zeros(2, 3).long())


def walk(value: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    """Yield whatever a state holds, with the way to it."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, each in value.items():
            yield from walk(each, (*path, key))
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from walk(each, (*path, place))


def damages(value: Any) -> Iterator[Any]:
    """Yield what may stand in the place of a value that was damaged."""
    yield REMOVED
    yield from ODD
    if isinstance(value, Tensor):
        yield from (value[None], value.double().long(), value.bool())
        yield torch.full_like(value, -7 if value.dtype.is_signed else 255)
        if value.dtype.is_floating_point:
            yield torch.full_like(value, math.nan)
        elif value.dtype is torch.int64:
            yield torch.full_like(value, 2**40)
        if value.ndim:
            yield torch.cat([value, value[:1]])
    elif isinstance(value, dict):
        yield value | {"unknown": 1}
    elif isinstance(value, list | tuple):
        yield [*value, 1]


def put(state: Any, path: tuple, value: Any) -> Any:
    """Return a state with another value in one place, and nothing else copied."""
    key, *rest = path
    keys = list(state) if isinstance(state, dict) else list(range(len(state)))
    values = {each: state[each] for each in keys}
    if rest:
        values[key] = put(values[key], tuple(rest), value)
    elif value is REMOVED:
        del values[key]
    else:
        values[key] = value
    return values if isinstance(state, dict) else type(state)(values.values())


def named(path: tuple) -> str:
    return "state" + "".join(f'["{key}"]' if isinstance(key, str) else f"[{key}]" for key in path)


def refuse_all(
    part: Any,
    state: Any,
    *,
    beside: tuple[str, ...] = (),
    error: type[Exception] = sb.ConfigurationError,
) -> int:
    """Load a state with each of its values damaged in turn; return how often it was refused.

    Args:
        part: loads it; it stands where the state was taken.
        state: of the part.
        beside: names of what is damaged elsewhere, or may be anything.
        error: what a refusal raises. Whatever is refused must have changed nothing.
    """
    intact, refused = bits(part.state_dict()), 0
    for path, value in walk(state):
        if any(name in path for name in beside):
            continue
        for damage in damages(value):
            damaged = put(state, path, damage)
            try:
                part.load_state_dict(damaged)
            except error:
                refused += 1
                assert bits(part.state_dict()) == intact, path
            except Exception as other:
                other.add_note(f"{path}: {damage}")
                raise
            else:
                part.load_state_dict(state)
    return refused
