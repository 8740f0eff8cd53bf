"""Understand typed names, however they are spelt, and import paths `package.module:function`."""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import selective_backprop as sb


def find_name(kind: str, typed: str, names: Iterable[str], *, more: str = "") -> str:
    """Return the name that was meant; an error names the known ones, and `more`."""
    names = [*names]
    if typed in names:  # the usual case, and fast, since reading records calls this often
        return typed
    known = {_bare(name): name for name in names}
    if _bare(typed) in known:
        return known[_bare(typed)]
    near = [known[each] for each in get_close_matches(_bare(typed), known)]
    meant = f". Did you mean {' or '.join(near)}? There" if near else "; there"
    raise sb.ConfigurationError(
        f"there is no {kind} {typed!r}{meant} are {', '.join(known.values())}{more}"
    )


def _bare(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")


def is_import_path(name: str) -> bool:
    """Whether a name is an import path: `mine:make` is one, `mnist:5-9` is not."""
    module, _, attribute = name.partition(":")
    return module != "" and not module.startswith(".") and attribute.isidentifier()


def find_object(name: str, *, kind: str, needed: str, also: tuple[type, ...] = ()) -> Any:
    """Return what an import path names: what is `needed` for a `kind`, or an object of `also`."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise sb.ConfigurationError(
            f"the {kind} {name!r} cannot be imported: {error} (is its folder on PYTHONPATH?)"
        ) from error
    found = getattr(module, attribute, None)
    if not callable(found) and not isinstance(found, also):
        there = repr(found)[:80] if hasattr(module, attribute) else "missing"
        raise sb.ConfigurationError(
            f"{attribute} in {module_name} is {there}, but the {kind} {name!r} needs {needed} there"
        )
    return found


def fingerprint(name: str) -> str | None:
    """Return the first digits of the SHA-256 of the file of a user's own object, or None."""
    if not is_import_path(name):
        return None
    with suppress(sb.ConfigurationError):  # raised where the function is called
        found = find_object(name, kind="function", needed="one", also=(object,))
        plain = inspect.isfunction(found) or inspect.isclass(found)
        module = sys.modules.get(found.__module__ if plain else name.partition(":")[0])
        return None if module is None else _digest(module)
    return None


@cache  # code in memory stays as it was imported, even if the file changes
def _digest(module: ModuleType) -> str | None:
    try:
        content = Path(module.__file__ or "").read_bytes()
    except (AttributeError, OSError):
        return None
    return hashlib.sha256(content).hexdigest()[:16]
