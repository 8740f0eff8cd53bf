"""Which code a model of the user's is made by, so that no record passes for one of other code."""

import hashlib
import inspect
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

import selective_backprop as sb
from selective_backprop.lab.nets.models import MODELS, find_factory


def fingerprint(name: str) -> str | None:
    """Return what tells the file that a model is made in from other states of that file.

    Args:
        name: of the model, or its import path.

    Returns:
        The first digits of the file's SHA-256 when this process first asked for it; None for the
        lab's own nets, and where there is no such file.
    """
    if name in MODELS:
        return None
    with suppress(sb.ConfigurationError):  # raised where the model is made
        factory = find_factory(name)
        named = name.partition(":")[0]
        plain = inspect.isfunction(factory) or inspect.isclass(factory)
        module = sys.modules.get(factory.__module__ if plain else named)
        return None if module is None else _digest(module)
    return None


def refuse_changed(path: Path, model: str, before: str | None, now: str | None) -> None:
    """Refuse to go on from what another state of a model's file has left.

    Args:
        path: of what it left.
        model: its name.
        before: its fingerprint then; None where that was not kept, as by older code.
        now: its fingerprint now.

    Raises:
        RecordError: if both are known and differ.
    """
    if None not in (before, now) and before != now:
        raise sb.RecordError(
            f"{path}: the file of {model} has changed since this was recorded; --again runs it "
            "anew, and where a command has no such option, move that file away"
        )


@cache  # the code in memory is the file as it was imported, whatever becomes of it
def _digest(module: ModuleType) -> str | None:
    try:
        content = Path(module.__file__ or "").read_bytes()
    except (AttributeError, OSError):
        return None
    return hashlib.sha256(content).hexdigest()[:16]
