"""What all commands share: printing, errors and exit status, devices, names and records."""

import json
import re
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

import selective_backprop as sb
from selective_backprop_lab.names import is_import_path
from selective_backprop_lab.records.files import make_folder, told
from selective_backprop_lab.records.lines import printable
from selective_backprop_lab.records.provenance import write_record
from selective_backprop_lab.records.schema import utc_now
from selective_backprop_lab.training.process import sigterm_leaves


class _Screen(Console):
    """A console that prints no control characters of names and messages, except line breaks."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)


# Folders may be named "[a]" or ":b:"; by default Rich takes these for a style and an emoji.
console = _Screen(markup=False, emoji=False, highlight=False)
errors = _Screen(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)

KEPT = "what was recorded is kept. To continue, run compare or reproduce again, or train --resume"


class Commands(TyperGroup):
    """The commands. If one cannot go on, it ends with a message and an exit status."""

    def invoke(self, ctx: Any) -> Any:  # the context's class differs between versions of Typer
        """Run the command that was typed."""
        try:
            with sigterm_leaves():
                return super().invoke(ctx)
        except sb.SelectiveBackpropError as error:
            errors.print(f"error: {error}")
            raise typer.Exit(2) from error
        except KeyboardInterrupt:
            errors.print(f"interrupted; {KEPT}")
            raise typer.Exit(130) from None
        except SystemExit as leaving:
            if leaving.code == 128 + signal.SIGTERM:
                errors.print(f"ended by SIGTERM; {KEPT}")
            raise


def find_device(name: str | None) -> str:
    """Return a device's name; for None, the GPU's name if there is one."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name is None:
        return "cuda" if gpus else "cpu"
    known = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{number}" for number in range(gpus))]
    if name not in known:
        raise sb.ConfigurationError(
            f"--device {name}: torch {torch.__version__} finds only {', '.join(known)} here"
        )
    return name


def look_here(name: str) -> str:
    """Return names; if one is an import path, let Python look in the current folder first."""
    here = str(Path.cwd())
    if sys.path[0] != here and any(map(is_import_path, re.split("[,+]", name))):
        sys.path.insert(0, here)
    return name


def command_line() -> str:
    """Return the running command, as it can be typed again."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def check_record(path: Path | None) -> None:
    """Refuse a file for `--json` that could not be written after measuring."""
    if path is None:
        return
    if path.is_dir():
        raise sb.ConfigurationError(f"--json {path}: this is a folder; name a file")
    make_folder(path.parent)


def save_record(path: Path | None, found: Mapping[str, Any]) -> None:
    """Write what was measured as JSON, with the command, the code and the machine."""
    if path is None:
        return
    # JSON has no NaN and no infinity.
    finite = json.loads(json.dumps(found, default=str), parse_constant=lambda name: None)
    with told(path):
        write_record(path, command_line(), {"written": utc_now(), **finite})
    console.print(f"Written: {path}.", soft_wrap=True)


def folder_of(place: Path) -> Path:
    """Return the place if it is a folder, or else the folder that holds it."""
    return place if place.is_dir() else place.parent
