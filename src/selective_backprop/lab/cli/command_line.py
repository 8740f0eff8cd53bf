"""What was asked for on a command line, as recipes and as text."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from selective_backprop.lab.recipe import Recipe


def look_here(model: str | None) -> None:
    """Let a model of the user's own be found in the current folder, as `python -m` would."""
    if model is not None and ":" in model:
        sys.path.insert(0, str(Path.cwd()))


def given(recipe: Recipe, **options: Any) -> Recipe:
    """Return a recipe with the options that were given, those that are not None."""
    return replace(recipe, **{name: value for name, value in options.items() if value is not None})


def command_line() -> str:
    """Return the command that runs, as it can be typed again."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def follows_examples(command: str) -> bool:
    """Whether a command records what becomes of each training example."""
    return _subcommand(command) in {"train", "compare"}


def going_on(command: str) -> str:
    """Return the command that goes on with what another one began: train must be told to."""
    words = [word for word in shlex.split(command) if word != "--again"]  # which begins anew
    return _with(words, "--resume") if _subcommand(command) == "train" else shlex.join(words)


def anew(command: str) -> str:
    """Return the command that does what another one did once more."""
    return _with(shlex.split(command), "--again")


def _subcommand(command: str) -> str:
    """Return what a recorded command asked for; nothing where it cannot have been typed."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    return words[1] if len(words) > 1 else ""


def _with(words: Sequence[str], option: str) -> str:
    return shlex.join(words if option in words else [*words, option])
