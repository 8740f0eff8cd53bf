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
    """Return the first digits of the SHA-256 of the file that a model is made in.

    The file is read when this process first asks for it. None stands for the lab's own nets, and
    for a model without such a file.
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
    """Refuse to go on from what another state of a model's file has left at `path`.

    Raises:
        RecordError: if the fingerprints of then and now are both known, and differ.
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
