"""Pack batches into plain containers, which `torch.load(weights_only=True)` can read safely."""

import dataclasses
import sys
import zlib
from collections import OrderedDict, UserDict
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selective_backprop._batches.structure import PLAIN, move_batch
from selective_backprop._core.errors import BatchError, ConfigurationError
from selective_backprop._core.saved_state import Read, Saved, StateError


def pack_batch(batch: Any, path: str = "") -> Any:
    """Return copies of a batch's leaves in plain containers, with the names of the types."""

    def pack_all(parts: Iterable[tuple[Any, Any]]) -> list[Any]:
        return [pack_batch(part, f"{path}.{key}".strip(".")) for key, part in parts]

    kind = type(batch)
    if kind is bytes:
        return "bytes", batch.decode("latin1")  # torch cannot read empty bytes
    if kind in PLAIN:
        return batch
    if isinstance(batch, Tensor):
        # A view is copied without the rest of its storage.
        return batch.detach().as_subclass(Tensor).clone()
    if isinstance(batch, np.generic):
        return "number", pack_batch(np.asarray(batch), path)
    if isinstance(batch, np.ndarray):
        if batch.dtype.kind not in "biufcUS":
            found = f"{path or 'the batch'} is an array of {batch.dtype}"
            raise BatchError(f"{found}, which a saved state cannot hold; return numbers or text")
        content = np.frombuffer(bytearray(batch.tobytes()), np.uint8)
        return "array", torch.from_numpy(content), batch.dtype.str, list(batch.shape)
    if kind in (list, tuple):
        return kind.__name__, pack_all(enumerate(batch))
    if kind is dict and all(type(key) in PLAIN for key in batch):
        return "dict", list(batch), pack_all(batch.items())
    names = _field_names(kind)
    if names is not None:
        parts = pack_all([(name, getattr(batch, name)) for name in names])
        word = "named tuple" if isinstance(batch, tuple) else "dataclass"
        return word, _type_name(path, kind), names, parts
    factory = getattr(batch, "default_factory", None)  # of a defaultdict
    if isinstance(batch, dict | UserDict) and kind is not dict and factory is None:
        others = {**getattr(batch, "__dict__", {})}
        others.pop("data", None)  # where a UserDict has its items
        if "_encodings" in others:  # of Transformers' BatchEncoding; they cannot be saved
            others["_encodings"] = None
        parts = pack_all([("", dict(batch)), ("", others)])
        return "mapping", _type_name(path, kind), (), parts
    raise BatchError(
        f"{path or 'the batch'} is a {kind.__name__}, which a saved state cannot hold. Let the "
        "collate function return tensors, arrays, numbers and text, in lists, tuples, dicts, named "
        'tuples or dataclasses. Or pass leftovers="drop" or "flush", and save between epochs.'
    )


def unpack_batch(packed: Any) -> Any:
    """Return the batch that was packed; the user's types must be imported, but run no code."""
    if not isinstance(packed, tuple):
        return packed
    kind, *content = packed
    if kind == "array":
        return content[0].cpu().numpy().view(content[1]).reshape(content[2])
    if kind == "number":
        return unpack_batch(content[0])[()]
    if kind == "bytes":
        return content[0].encode("latin1")
    items = [unpack_batch(item) for item in content[-1]]
    if kind in ("list", "tuple"):
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return dict(zip(content[0], items, strict=True))
    return _fill(kind, *content[:-1], items)


def seal(content: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return content packed for a saved state, with a checksum that shows `unseal` any damage."""
    packed = pack_batch(content)
    return *packed, _checksum(packed)


def unseal(saved: Saved, kind: type[Read]) -> Read:
    """Return content that was sealed; refuse it if a value has changed, or if it is no `kind`."""
    with saved.inside():
        *parts, checksum = saved.value
        packed = tuple(parts)
        if checksum != _checksum(packed):
            raise StateError("", " is damaged: it does not agree with its checksum")
        found = unpack_batch(packed)
    if not isinstance(found, kind):
        raise saved.refuse(f"a {kind.__name__}")
    return found


def _checksum(packed: Any, start: int = 0) -> int:
    if isinstance(packed, Tensor):
        start = zlib.crc32(f"{packed.dtype}{tuple(packed.shape)}".encode(), start)
        flat = packed.cpu().resolve_conj().resolve_neg().reshape(-1)
        return zlib.crc32(flat.view(torch.uint8).numpy(), start)
    if isinstance(packed, list | tuple):
        start = zlib.crc32(f"{type(packed).__name__}{len(packed)}".encode(), start)
        return reduce(lambda crc, part: _checksum(part, crc), packed, start)
    return zlib.crc32(repr(packed).encode(), start)


def _type_name(path: str, kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _find(name) is not kind:
        raise BatchError(
            f"{path or 'the batch'} is a {kind.__qualname__}, which {kind.__module__} lacks at its "
            "top level, so a saved state could not be loaded: define it at the top of a module"
        )
    return name


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _fill(kind: str, name: str, names: Sequence[str], items: list[Any]) -> Any:
    found = _find(name)
    if not isinstance(found, type):
        raise ConfigurationError(f"the state holds rows of type {name}, which is not imported")
    held = {"named tuple": tuple, "dataclass": object, "mapping": dict | UserDict}[kind]
    if not issubclass(found, held) or (kind != "mapping" and _field_names(found) != names):
        raise ConfigurationError(
            f"the state holds rows of type {name}, saved as a {kind} with "
            f"{', '.join(names) or 'items'}, but the type is now something else. Load the state "
            "with the code that saved it."
        )
    if kind == "named tuple":
        return tuple.__new__(found, items)
    content, others = items if kind == "mapping" else ({}, dict(zip(names, items, strict=True)))
    base: Any = next((each for each in (OrderedDict, dict) if issubclass(found, each)), object)
    made = base.__new__(found)
    if issubclass(found, UserDict):
        others["data"] = content
    else:
        for key, item in content.items():
            base.__setitem__(made, key, item)
    for attribute, value in others.items():
        object.__setattr__(made, attribute, value)
    return made


def _field_names(kind: type) -> tuple[str, ...] | None:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None


def on_device(state: Any, device: torch.device | None) -> Any:
    return state if device is None else move_batch(state, device)
