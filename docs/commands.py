"""Write the reference of the command line, docs/command.md, from the command itself.

Run it when a command or an option has changed: `python docs/commands.py`. A test compares.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from selective_backprop_lab.cli.main import app

PAGE = Path(__file__).with_name("command.md")
MARK = "<!-- What follows is written by docs/commands.py: change the command, not this page. -->\n"
NAME = "selective-backprop"


def describe(app: typer.Typer) -> str:
    """Return what every command does, and each of its options.

    Raises:
        ValueError: if a command, an option or an argument does not say what it is for.
    """
    commands: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    return "\n".join(line for name in commands for line in _command(name, commands[name]))


def rewrite(page: str, app: typer.Typer) -> str:
    """Return a page with everything below its mark written anew."""
    above, _, _ = page.partition(MARK)
    return f"{above}{MARK}\n{describe(app)}"


def _command(name: str, command: Any) -> Iterator[str]:
    if not command.help:
        raise ValueError(f"the command {name} does not say what it does")
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    told = (each.metavar + "..." * (each.nargs < 0) for each in arguments)
    usage = " ".join([NAME, name, *told, "[OPTIONS]"])
    yield from (f"## {name}", "", "```console", f"$ {usage}", "```", "")
    for paragraph in command.help.split("\n\n"):
        yield from (_wrapped(paragraph), "")
    for each in command.params:
        yield from _parameter(name, each)


def _parameter(command: str, each: Any) -> Iterator[str]:
    names = [each.metavar] if each.param_type_name == "argument" else each.opts
    if not each.help:
        raise ValueError(f"{command} {names[0]} does not say what it is for")
    value = "" if each.param_type_name == "argument" or each.is_flag else f" {each.metavar}"
    if "None" in value:
        raise ValueError(f"{command} {names[0]} does not say what its value stands for: metavar=")
    yield ", ".join(f"`{name}{value}`" for name in names)
    yield _wrapped(each.help + _default(each), start=": ")
    yield ""


def _default(each: Any) -> str:
    if isinstance(each.show_default, str):
        return f" Default: `{each.show_default}`."
    if each.default is None or getattr(each, "is_flag", False):
        return ""
    return f" Default: `{each.default}`."


def _wrapped(text: str, start: str = "") -> str:
    # As code, an option keeps its two hyphens, which would become a dash.
    text = re.sub(r"(?<![`\w])--[a-z][a-z-]*", r"`\g<0>`", " ".join(text.split()))
    return textwrap.fill(
        text,
        100,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8"), app), encoding="utf-8")
