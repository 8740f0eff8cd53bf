"""Batches in plain containers, which `torch.load(weights_only=True)` reads without running code."""

import dataclasses
import sys
from collections import OrderedDict, UserDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selective_backprop._batches.structure import PLAIN, move_batch
from selective_backprop._core.errors import BatchError, ConfigurationError


def pack_batch(batch: Any) -> Any:
    """Return copies of a batch's leaves in plain containers, with the names of the original types.

    It may hold tensors, arrays, numbers and text, in lists, tuples, dicts (and subclasses of `dict`
    or `UserDict`), named tuples and dataclasses, all defined at the top of their modules.
    """
    return _pack("", batch)


def unpack_batch(packed: Any) -> Any:
    """Return the batch that was packed.

    The user's own types are looked up in modules that are already imported, and filled without
    running any of their code.
    """
    if not isinstance(packed, tuple):
        return packed
    kind, *content = packed
    if kind in ("array", "number"):
        array = content[0].numpy()
        return array if kind == "array" else array[()]
    if kind == "texts":
        texts, shape, dtype = content
        return np.array(texts, dtype).reshape(shape)
    items = [unpack_batch(item) for item in content[-1]]
    if kind in ("list", "tuple"):
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return dict(zip(content[0], items, strict=True))
    return _fill(kind, *content[:-1], items)


def pack_column(column: Tensor | None) -> Tensor | None:
    """Return a copy of a tensor; a view is copied without the rest of its storage."""
    return None if column is None else column.detach().as_subclass(Tensor).clone()


def _pack(path: str, value: Any) -> Any:
    if type(value) in PLAIN:
        return value
    if isinstance(value, Tensor):
        return pack_column(value)
    if isinstance(value, np.ndarray | np.generic):
        return _pack_array(path, value)
    if type(value) in (list, tuple):
        return type(value).__name__, _pack_all(path, enumerate(value))
    if type(value) is dict and all(type(key) in PLAIN for key in value):
        return "dict", list(value), _pack_all(path, value.items())
    named = isinstance(value, tuple) and hasattr(value, "_fields")
    if named or dataclasses.is_dataclass(type(value)):
        names = list(value._fields) if named else [field.name for field in _fields(type(value))]
        parts = _pack_all(path, [(name, getattr(value, name)) for name in names])
        return "named tuple" if named else "dataclass", _name(path, value), names, parts
    if isinstance(value, dict | UserDict) and type(value) is not dict:
        others = {key: part for key, part in vars(value).items() if key != "data"}
        parts = [("", dict(value)), ("", others)]
        return "mapping", _name(path, value), [], _pack_all(path, parts)
    raise BatchError(
        f"{path or 'the batch'} is a {type(value).__name__}, which a saved state cannot hold. Let "
        "the collate function return tensors, arrays, numbers and text, in lists, tuples, dicts, "
        'named tuples or dataclasses; or let no rows wait: leftovers="drop" or "flush", and take '
        "the state when an epoch is over."
    )


def _pack_all(path: str, parts: Iterable[tuple[Any, Any]]) -> list[Any]:
    return [_pack(f"{path}.{key}".strip("."), part) for key, part in parts]


def _pack_array(path: str, array: np.ndarray | np.generic) -> tuple[Any, ...]:
    if array.dtype.kind in "biufc":
        tensor = torch.from_numpy(np.array(array))
        return ("array" if isinstance(array, np.ndarray) else "number"), tensor
    if array.dtype.kind in "US" and isinstance(array, np.ndarray):
        return "texts", array.ravel().tolist(), list(array.shape), array.dtype.str
    raise BatchError(
        f"{path or 'the batch'} is an array of {array.dtype}, which a saved state cannot hold. Let "
        "the collate function return numbers or text."
    )


def _name(path: str, value: Any) -> str:
    kind = type(value)
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _find(name) is not kind:
        raise BatchError(
            f"{path or 'the batch'} is a {kind.__qualname__}, which is not to be found under that "
            f"name in {kind.__module__} when a state is loaded. Define it at the top of a module."
        )
    return name


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _fill(kind: str, name: str, names: Sequence[str], items: list[Any]) -> Any:
    """Return an object of one of the user's types without running its code."""
    found = _find(name)
    if not isinstance(found, type):
        raise ConfigurationError(
            f"the state holds rows of type {name}, which is not imported here. Import it before "
            "load_state_dict()."
        )
    if kind == "named tuple" and list(getattr(found, "_fields", ())) == names:
        return tuple.__new__(found, items)
    if kind == "dataclass" and [field.name for field in _fields(found)] == names:
        made = object.__new__(found)
        for field, item in zip(names, items, strict=True):
            object.__setattr__(made, field, item)
        return made
    if kind == "mapping" and issubclass(found, dict | UserDict):
        content, others = items
        if issubclass(found, dict):
            base = OrderedDict if issubclass(found, OrderedDict) else dict
            made = base.__new__(found)
            for key, item in content.items():
                base.__setitem__(made, key, item)
        else:
            made = object.__new__(found)
            others = {"data": content, **others}
        vars(made).update(others)
        return made
    raise ConfigurationError(
        f"the state holds rows of type {name}, a {kind} with {', '.join(names) or 'items'}; here "
        "it is something else. Load the state with the code that it was saved with."
    )


def _fields(kind: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


def on_device(state: Any, device: torch.device | None) -> Any:
    """Return a state with its tensors on `device`; unchanged if that is None."""
    return state if device is None else move_batch(state, device)
