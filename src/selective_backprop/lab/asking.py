"""What was asked for on a command line, as recipes and as text."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from selective_backprop.lab.recipes import Recipe


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
