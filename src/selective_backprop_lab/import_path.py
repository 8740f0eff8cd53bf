"""Find functions of the user's own by an import path: `package.module:function`."""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import selective_backprop as sb


def is_import_path(name: str) -> bool:
    """Whether a name is an import path: `mine:make` is one, `mnist:5-9` is not."""
    module, _, attribute = name.partition(":")
    return module != "" and not module.startswith(".") and attribute.isidentifier()


def find_function(name: str, *, kind: str, needed: str) -> Callable[..., Any]:
    """Return the function that an import path names: one that is `needed` to make a `kind`."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise sb.ConfigurationError(
            f"the {kind} {name!r} cannot be imported: {error} (is its folder on PYTHONPATH?)"
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise sb.ConfigurationError(
            f"{attribute} in {module_name} is {function!r:.80}, but the {kind} {name!r} needs "
            f"{needed} there"
        )
    return function


def fingerprint(name: str) -> str | None:
    """Return the first digits of the SHA-256 of the file that defines a user's function.

    None for the lab's own nets and data, and for a function without a file.
    """
    if not is_import_path(name):
        return None
    with suppress(sb.ConfigurationError):  # raised where the function is called
        function = find_function(name, kind="function", needed="one")
        plain = inspect.isfunction(function) or inspect.isclass(function)
        module = sys.modules.get(function.__module__ if plain else name.partition(":")[0])
        return None if module is None else _digest(module)
    return None


@cache  # code in memory stays as it was imported, even if the file changes
def _digest(module: ModuleType) -> str | None:
    try:
        content = Path(module.__file__ or "").read_bytes()
    except (AttributeError, OSError):
        return None
    return hashlib.sha256(content).hexdigest()[:16]
